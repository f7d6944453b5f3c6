"""The interface of auditors: look at a model on a dataset, batch by batch, and say what is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from fairkit.engines.local import LocalEngine
from fairkit.progress import Progress, no_progress
from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.source import Source
    from fairkit.data.task import Task
    from fairkit.engines.base import Engine
    from fairkit.metrics import Headline, Metric, Term
    from fairkit.models.scorer import Predictions, Scorer
    from fairkit.results.findings import Finding
    from fairkit.results.policy import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditContext:
    """What an auditor is given besides batches.

    Attributes
    ----------
    dataset
        The table with its roles.
    scorer
        The model bound to it; an auditor may call it on rows of its own.
    metrics
        The group metrics of the installed plugins.
    confidence
        Of every interval, in (0, 1).
    seed
        For `rng`.
    progress
        Tell it about long work.
    engine
        What runs functions where the rows are.
    signed
        The findings of the certificate that is being checked; empty in an audit. An auditor whose evidence can be
        checked may confirm them instead of searching again; what it cannot confirm it must find anew.
    """

    dataset: Dataset
    scorer: Scorer
    metrics: Sequence[type[Metric]] = ()
    confidence: float = 0.95
    seed: int = 0
    progress: Progress = field(default=no_progress, compare=False)
    engine: Engine = field(default_factory=LocalEngine, compare=False)
    signed: Sequence[Finding] = ()

    def distinct(self, column: str, most: int = 10_000) -> list[Any]:
        """Return a column's distinct values in the rows that are used, text last; a few more than `most` at most."""
        dataset = self.engine.share(self.dataset.without_rows())
        total = self.engine.total(_distinct, self.dataset.source, dataset, column, most)
        return sorted(dict.fromkeys(total), key=lambda value: (isinstance(value, str), value))

    def rng(self, purpose: str) -> np.random.Generator:
        """Make a generator from the seed, its own for every purpose."""
        return np.random.default_rng([self.seed, *purpose.encode()])


def _distinct(source: Source, start: int, dataset: Dataset, column: str, most: int) -> list[Any]:
    """Return a column's distinct values in a piece of the table."""
    seen: dict[Any, None] = {}
    for batch in dataset.part(source, start).batches([column]):
        values = set(batch.column(column).tolist())
        seen.update(dict.fromkeys(v for v in values if v is not None and v == v))  # noqa: PLR0124 -- not NaN
        if len(seen) > most:
            break
    return list(seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoParameters:
    """For auditors that have none."""


class Auditor(ABC):
    """Measures something about a model on a dataset.

    `measure` turns each batch into a partial result; partial results add up with ``+``, in any order, so
    that an audit can stream, and run on several machines; `findings` turns the total into findings.
    What `measure` needs to know about all rows it learns in `begin`: on a cluster copies of the auditor measure,
    and what they change in themselves is not seen elsewhere.
    A complete example::

        from dataclasses import dataclass

        import numpy as np

        import fairkit

        class Coverage(fairkit.Auditor):
            \"\"\"The share of rows whose score is far from the threshold.\"\"\"

            name = "coverage"
            tasks = frozenset({"binary"})

            @dataclass(frozen=True, slots=True, kw_only=True)
            class Parameters:
                margin: float = fairkit.parameter(0.1, help="How far from 0.5.", minimum=0)

            def measure(self, batch, predictions, context):
                if predictions.score is None:
                    raise fairkit.ModelError("coverage needs scores, and this model gives decisions only")
                far = abs(predictions.score - 0.5) > self.parameters.margin
                return np.array([far.sum(), len(batch)])

            def findings(self, total, context):
                return [fairkit.Finding(auditor=self.name, metric="coverage", value=total[0] / total[1],
                                        notes=("No interval: the share is of these very rows.",))]

        @fairkit.hookimpl
        def fairkit_auditors():
            return [Coverage]

    Attributes
    ----------
    name
        What the user types after ``--auditor``.
    summary
        One sentence for ``fairkit plugins show``.
    `Parameters`
        A frozen dataclass; the command line builds ``--set NAME.KEY=VALUE`` from it.
    tasks
        The tasks that it can look at.
    citation
        Where the method is published.
    headlines
        Where views show findings of its own that are no single metric's, by name (see `fairkit.metrics.Headline`).
    terms
        What such findings are called in plain words, by name (see `fairkit.metrics.Term`).
    uses
        Which conditions of the data change its numbers or intervals as they must: a subset of {``weights``,
        ``clusters``, ``strata``, ``reference``, ``group_probabilities``, ``missing_groups``, ``missing_labels``}. An
        audit of data with another condition refuses the auditor. Rows without a group have the index -1 in
        ``batch.groups``, those without a label are not in ``batch.labelled``. That rows are copies is told at every
        interval, whatever the auditor.
    unaffected_by
        Which conditions do not concern it: its numbers are right, and the same, with them and without.
    asks
        Whether it asks the model about rows that are not in the table: it is refused where no model was given.
    spread
        Whether partial results are as large as the rows. They then stay where the rows are, and `findings` is
        given a `fairkit.engines.base.Spread` of them instead of their sum.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    headlines: ClassVar[Mapping[str, Headline]] = {}
    terms: ClassVar[Mapping[str, Term]] = {}
    Parameters: ClassVar[type] = NoParameters
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass", "regression"})
    citation: ClassVar[str] = ""
    spread: ClassVar[bool] = False
    uses: ClassVar[frozenset[str]] = frozenset()
    unaffected_by: ClassVar[frozenset[str]] = frozenset()
    asks: ClassVar[bool] = False

    def __init__(self, parameters: Any = None) -> None:
        self.parameters = self.Parameters() if parameters is None else parameters

    def columns(self, context: AuditContext) -> Sequence[str]:
        """Name the columns that `measure` reads besides the model's."""
        return ()

    def needs_rows(self, metrics: Sequence[type[Metric]]) -> str | None:
        """Return why rows must be read one by one; None where it is enough to know how many rows are equal.

        They are then counted, by a database (engine ``sql``) or while a large table is read, and `measure` gets each
        distinct row once, with the columns that it reads; for rows that occur k times its partial result is added k
        times. Row numbers mean nothing.
        """
        return f"the auditor {self.name!r} looks at single rows"

    def begin(self, context: AuditContext) -> None:  # noqa: B027 -- most auditors need nothing
        """Prepare, once, before any batch is measured."""

    @abstractmethod
    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> Any:
        """Turn one batch into a partial result, which adds up with ``+``."""

    @abstractmethod
    def findings(self, total: Any, context: AuditContext) -> list[Finding]:
        """Turn the sum of the partial results into findings."""

    @classmethod
    def measures(cls, metrics: Sequence[type[Metric]]) -> frozenset[str] | None:
        """Return the names that findings may have; None, the default: they are not known before an audit.

        A policy's rule on one of them adds the auditor to an audit, and a rule that no auditor measures is refused
        before any row is read.

        Parameters
        ----------
        metrics
            Those that the auditor would be given.
        """
        return None

    @classmethod
    def advice(cls, finding: Finding, limit: float) -> str | None:
        """Return what would decide an inconclusive rule with such a limit, as a sentence; None: more rows."""
        return None


@runtime_checkable
class ComparesTables(Protocol):
    """An auditor that can say what changed between two tables, for `fairkit compare --against`."""

    def table_changes(
        self, totals: Sequence[Sequence[Any]], contexts: Sequence[Sequence[AuditContext]]
    ) -> list[Change]:
        """Return the changes between two tables.

        `totals`: what `Auditor.measure` added up, by table (the earlier first) and model (one, or each table's own);
        `contexts`: in the same order; `begin` was called with each.
        """
        ...
