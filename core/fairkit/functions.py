"""Plain functions as metrics: ``{"mcc": sklearn.metrics.matthews_corrcoef}``, for rows in memory."""

from __future__ import annotations

import importlib
import inspect
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.limits import student
from fairkit.metrics import Estimate, Metric
from fairkit.statistics import Rows, Statistic
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.task import Task

    Array = NDArray[np.float64]

Function = Callable[..., Any]
DRAWS = 200
"""Times that a group's rows are drawn again for the standard error."""
NOTE = (
    f"Its interval is a bootstrap ({DRAWS} draws of the rows, normal approximation): unlike those of the built-in "
    "metrics, its coverage was not checked."
)
_SCORES = ("y_score", "y_scores", "scores", "score", "y_prob", "y_proba", "y_probas", "probas_pred")


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Rows as they are, with their groups; adding two puts them together."""

    parts: tuple[tuple[Any, ...], ...]
    groups: int  # how many groups there are

    def __add__(self, other: KeptRows) -> KeptRows:
        return KeptRows((*self.parts, *other.parts), self.groups)

    def pooled(self) -> KeptRows:
        """Return the rows as one group."""
        return KeptRows(tuple((*part[:4], np.zeros_like(part[4])) for part in self.parts), 1)

    def of(self, group: int) -> Rows:
        """Return one group's rows."""
        chosen = [[None if column is None else column[part[4] == group] for column in part[:4]] for part in self.parts]
        outcome, decision, score, weights = (
            None if columns[0] is None else np.concatenate(columns) for columns in zip(*chosen, strict=True)
        )
        assert outcome is not None  # noqa: S101 -- rows have outcomes
        return Rows(outcome=outcome, decision=decision, score=score, weights=weights)


class _Kept(Statistic):
    key = "rows"
    keeps_rows = True

    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> KeptRows:
        """Keep the rows."""
        if rows.members is not None:
            raise DataError("the model draws its scores by chance, and a function sees one score of a row")
        return KeptRows(((rows.outcome, rows.decision, rows.score, rows.weights, groups),), n_groups)

    def first_sums(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> Array:
        """Refuse rows that depend on each other."""
        raise DataError(
            "rows depend on each other (clusters), and a bootstrap of single rows would be too narrow; write the "
            "number as a fairkit.Metric"
        )


KEPT = _Kept()
"""The one statistic of all functions, so that rows are kept once."""


class FunctionMetric(Metric):
    """A number that a function computes from a group's rows."""

    function: ClassVar[Function]
    source: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary", "regression"})
    between: ClassVar[frozenset[str]] = frozenset({"difference", "extreme"})

    def compute(self, sums: Array) -> Array:
        """Refuse: a function is computed from rows."""
        raise NotImplementedError(f"{self.name} is computed from rows")

    @property
    def statistic(self) -> Statistic:
        """The rows themselves."""
        return KEPT

    def estimate(self, totals: KeptRows, rng: np.random.Generator) -> Estimate:
        """Compute the number in every group, and its standard error from rows drawn again."""
        values, errors, sizes = (np.full(totals.groups, np.nan) for _ in range(3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a library warns of every draw without some class
            for group in range(totals.groups):
                rows = totals.of(group)
                sizes[group] = len(rows.outcome)
                if len(rows.outcome):
                    values[group] = self._number(rows, None)
                if math.isfinite(values[group]):
                    errors[group] = self._error(rows, rng)

        def limits(z: float) -> tuple[Array, Array]:
            half = student(z, sizes) * errors
            return values - half, values + half

        return Estimate(values, limits, sizes, notes=(NOTE,))

    def _error(self, rows: Rows, rng: np.random.Generator) -> float:
        """Return the standard deviation over draws; NaN where most draws have no number."""
        count = len(rows.outcome)
        draws = np.array([self._number(rows, rng.integers(count, size=count)) for _ in range(DRAWS)])
        draws = draws[np.isfinite(draws)]
        return float(draws.std(ddof=1)) if len(draws) > DRAWS // 2 else math.nan

    def _number(self, rows: Rows, drawn: NDArray[np.int64] | None) -> float:
        columns = (rows.outcome, rows.decision, rows.score, rows.weights)
        outcome, decision, score, weights = (
            column if column is None or drawn is None else column[drawn] for column in columns
        )
        assert outcome is not None  # noqa: S101 -- rows have outcomes
        parameters = _parameters(type(self).function)
        scores = (parameters[1:2] and parameters[1] in _SCORES) or decision is None
        said = score if scores else decision
        if said is None:
            raise DataError(f"{self.name} is computed from scores, and this model gives decisions only")
        if decision is not None:
            outcome = outcome.astype(np.int64)
        if not scores:
            outcome, said, weights = _whole(outcome, said, weights)
        more: dict[str, Any] = {}
        if weights is not None:
            if "sample_weight" not in parameters:
                raise DataError(
                    f"the rows have weights, or decisions by chance, and {self.source} takes no sample_weight"
                )
            more["sample_weight"] = weights
        try:
            return float(type(self).function(outcome, said, **more))
        except Exception:
            if drawn is None:
                raise
            return math.nan  # a draw without one of the classes


def _whole(outcome: Array, decision: Array, weights: Array | None) -> tuple[Array, Array, Array | None]:
    """Return decisions as 0 and 1; a row that is decided by chance becomes two, weighted by their chances."""
    if bool(((decision == 0) | (decision == 1)).all()):
        return outcome, decision.astype(np.int64), weights
    each = np.ones(len(outcome)) if weights is None else weights
    both = np.repeat([1, 0], len(outcome))
    return np.tile(outcome, 2), both, np.concatenate([each * decision, each * (1 - decision)])


def _parameters(function: Function) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin without a signature
        return []


def metrics_of(functions: Mapping[str, Function], taken: Sequence[str] = ()) -> list[type[Metric]]:
    """Return functions as metrics."""
    made: list[type[Metric]] = []
    for name, function in functions.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or re.search(r"_(difference|ratio|group_m(in|ax))$", name):
            raise ParameterError(
                f"a metric cannot be called {name!r}: give a name of lower-case letters, digits and underscores, such "
                "as 'mcc'; differences between groups are added under 'mcc_difference'"
            )
        if name in taken:
            raise ParameterError(f"there is a metric {name!r} already; give the function another name")
        if not callable(function):
            raise ParameterError(f"the metric {name!r} is no function: {function!r}")
        source = f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', type(function).__name__)}"
        about = {
            "name": name,
            "function": staticmethod(function),
            "source": source,
            "meaning": f"What {source} returns.",
            "__module__": __name__,
            "__doc__": f"What {source} returns for a group's rows.",
        }
        made.append(type(f"Function_{name}", (FunctionMetric,), about))
    return made


def imported(text: str) -> tuple[str, Function]:
    """Import ``module:function``, or ``name=module:function``; return the metric's name and the function.

    Importing a module runs it: only the user's own words come here, no file and no certificate.
    """
    name, _, path = text.rpartition("=")
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise ParameterError(
            f"the metric {text!r} is not spelled module:function; write, for example, "
            "mcc=sklearn.metrics:matthews_corrcoef"
        )
    try:
        function: Any = importlib.import_module(module)
        for part in attribute.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        raise ParameterError(f"the metric {text!r} cannot be imported: {error}") from error
    return name or attribute.rpartition(".")[2].lower(), function
