"""The rows of an audit as attributions need them: raw columns, outcomes, predictions, groups, in one fixed order."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.auditing.measure import views
from fairkit.data.arrow_types import as_numpy
from fairkit.data.hashing import mixed, words_of
from fairkit.data.roles import value_text
from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.intervals import guarded, two_sided
from fairkit.parameters import parameter
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_why.permutation_walks import by_cluster, clustered, effective

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.data.arrow_types import Batch
    from fairkit.models.scorer import Predictions
    from fairkit_watch.counting import Cells

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]


PEOPLE = ""
"""In place of a sensitive column: the group that conditions describe, and everybody else."""
_NUMBERS = ("outcome", "decision", "score", "weights", "clusters")
MOST_ROWS, FEWEST_SAMPLED = 200_000, 1_000
"""Rows of a larger table that are kept for each split, as many of every group where there are; and at least of each."""


@dataclass(frozen=True, eq=False)
class Collected:
    """Some rows; adding two joins them, and leaves rows out where they are too many."""

    columns: Mapping[str, tuple[pa.Array, ...]]  # raw columns, each as pieces
    groups: Mapping[str, tuple[Ints, ...]]
    numbers: Mapping[str, tuple[Array, ...]]
    rows: tuple[Ints, ...]  # numbers in the table
    most: Mapping[str, int]  # how many rows of a group are kept, by split; empty where all are
    totals: Mapping[str, Array]  # of all rows, by split, shape [groups, 7]: four cells, Σw, Σw² and rows
    label: str | None = None  # of several classes, the one that all others stand against; else None
    salt: int = 0  # of the draw: the first 8 bytes of the table's digest, which has every value and the order

    def __add__(self, other: Collected) -> Collected:
        joined = Collected(
            {name: pieces + other.columns[name] for name, pieces in self.columns.items()},
            {name: pieces + other.groups[name] for name, pieces in self.groups.items()},
            {name: pieces + other.numbers[name] for name, pieces in self.numbers.items()},
            self.rows + other.rows,
            self.most,
            {name: total + other.totals[name] for name, total in self.totals.items()},
            self.label,
            self.salt,
        )
        return joined.smallest() if sum(map(len, joined.rows)) > 1.5 * MOST_ROWS else joined

    def smallest(self) -> Collected:
        """Leave out rows of groups that have too many; the rows stay whose numbers have the smallest hashes.

        So each group's rows are drawn at random, the same ones in whatever batches, and no seed chooses them. Whoever
        moves or changes a row to leave another one out draws all rows anew.
        """
        if not self.most:
            return self
        import pyarrow as pa

        rows, groups = np.concatenate(self.rows), {name: np.concatenate(codes) for name, codes in self.groups.items()}
        keys = mixed(rows.astype(np.uint64) ^ np.uint64(self.salt))
        for name, codes in groups.items():
            order = np.lexsort((keys, codes))
            ranked = codes[order]
            codes[order[np.arange(len(order)) - np.searchsorted(ranked, ranked) >= self.most[name]]] = -1
        stays = np.logical_or.reduce([codes >= 0 for codes in groups.values()])
        mask = pa.array(stays)
        return replace(
            self,
            columns={n: (pa.chunked_array(c).filter(mask).combine_chunks(),) for n, c in self.columns.items()},
            groups={name: (codes[stays],) for name, codes in groups.items()},
            numbers={name: (np.concatenate(values)[stays],) for name, values in self.numbers.items()},
            rows=(rows[stays],),
        )

    @classmethod
    def of(
        cls,
        batch: Batch,
        predictions: Predictions,
        columns: Sequence[str],
        context: AuditContext,
        people: Sequence[Mapping[str, Any]] = (),
    ) -> Collected:
        """Take a batch's rows; those who fulfil the conditions `people` are group 0 of `PEOPLE`."""
        *_, (label, rows) = views(batch, predictions, context.scorer, context.dataset)
        measured = {
            "outcome": rows.outcome if batch.label is not None else None,
            "decision": rows.decision,
            "score": rows.score,
            "weights": batch.weights,
            "clusters": batch.clusters,
        }
        absent = np.full(len(batch), np.nan)
        numbers = {
            name: (absent if measured[name] is None else np.asarray(measured[name], dtype=np.float64),)
            for name in _NUMBERS
        }
        groups = {name: (codes,) for name, codes in batch.groups.items()}
        if people:
            inside = np.logical_and.reduce(
                [_fulfils(person, as_numpy(batch.arrow(person["column"]))) for person in people]
            )
            groups[PEOPLE] = (np.where(inside, 0, 1),)
        profile, most, totals = context.dataset.profile, {}, {}
        if profile.rows > MOST_ROWS:
            w = np.ones(len(batch)) if batch.weights is None else batch.weights
            y, d = (numbers[name][0] for name in ("outcome", "decision"))
            outcomes, decisions = (1 - y, y), (1 - d, d)
            parts = [*(each * said for each in outcomes for said in decisions), np.ones(len(w)), w]
            for name, (codes,) in groups.items():
                sizes = [profile.rows] * 2 if name == PEOPLE else list(profile.groups[name].values())
                most[name], there = most_of_each(sizes), codes >= 0
                sums = [np.bincount(codes[there], (w * part)[there], len(sizes)) for part in parts]
                totals[name] = np.stack([*sums, np.bincount(codes[there], minlength=len(sizes))], axis=1)
        cells = {name: (batch.arrow(name),) for name in columns}
        salt = int(profile.sha256[:16], 16)
        return cls(cells, groups, numbers, (batch.rows,), most, totals, label, salt)


def most_of_each(sizes: Sequence[int]) -> int:
    """Return how many rows of a group are kept, so that all groups together have about `MOST_ROWS`."""
    room, left = MOST_ROWS, len(sizes)
    for size in sorted(sizes):
        if size * left > room:
            return max(room // left, FEWEST_SAMPLED)
        room, left = room - size, left - 1
    return max(sizes)


def _fulfils(condition: Mapping[str, Any], values: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which values fulfil a condition (see `fairkit.results.findings`)."""
    if "value" in condition:
        wanted = condition["value"]
        missing = np.array([value is None or str(value) == "nan" for value in values.tolist()])
        texts = np.array([value_text(value) for value in values.tolist()])
        return np.asarray(missing if wanted is None else ~missing & (texts == str(wanted)))
    low, high = condition["low"], condition["high"]
    numbers = values.astype(np.float64)
    return np.asarray((numbers >= (-np.inf if low is None else low)) & (numbers <= (np.inf if high is None else high)))


class People:
    """All rows, in the order of a hash of what they hold: the same whatever order and pieces the table comes in.

    Equal rows get hashes of their own by how many came before, so that the first k rows are k rows drawn at random.
    """

    def __init__(self, collected: Collected) -> None:
        import pyarrow as pa

        numbers = {name: np.concatenate(pieces) for name, pieces in collected.numbers.items()}
        groups = {name: np.concatenate(pieces) for name, pieces in collected.groups.items()}
        columns = {name: pa.chunked_array(pieces).combine_chunks() for name, pieces in collected.columns.items()}
        hashes = np.zeros(len(numbers["outcome"]), dtype=np.uint64)
        for column in columns.values():
            hashes = mixed(hashes ^ _filled(column))
        parts = (numbers["outcome"], numbers["weights"], numbers["clusters"], *groups.values())
        for values in parts:  # not what the model says, which rounding may change on another machine
            hashes = mixed(hashes ^ np.asarray(values + 0.0, dtype=np.float64).view(np.uint64))
        self.order, self.label, self.totals = _shuffled(hashes), collected.label, collected.totals
        self._columns = columns
        self.hashes = hashes[self.order]
        self.groups = {name: codes[self.order] for name, codes in groups.items()}
        self._numbers = {name: values[self.order] for name, values in numbers.items()}
        self._made: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.order)

    def column(self, name: str) -> NDArray[Any]:
        """Return a raw column, shape [n]."""
        if name not in self._made:
            self._made[name] = as_numpy(self._columns[name])[self.order]
        return self._made[name]

    def number(self, name: str) -> Array | None:
        """Return outcome, decision, score, weights or clusters, shape [n]; None where there is none."""
        values = self._numbers[name]
        return None if not len(values) or np.isnan(values).any() else values

    @cached_property
    def weights(self) -> Array | None:
        """The rows' weights; None where all count the same."""
        return self.number("weights")


def _filled(column: pa.Array) -> NDArray[np.uint64]:
    """Return a word for each cell; missing ones have one of their own."""
    import pyarrow.compute as pc

    hashed = words_of(column)
    absent = as_numpy(pc.is_null(column, nan_is_null=True))
    if absent.any():
        hashed = np.where(absent, np.uint64(0x5BD1E995), hashed)
    return hashed


def _shuffled(hashes: NDArray[np.uint64]) -> Ints:
    """Return the order of the rows by their hash and how many equal rows came before."""
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    start = np.concatenate([[True], ranked[1:] != ranked[:-1]]) if len(hashes) else np.zeros(0, dtype=bool)
    first = np.maximum.accumulate(np.where(start, np.arange(len(hashes)), 0))
    copies = (np.arange(len(hashes)) - first).astype(np.uint64)
    return np.asarray(order[np.argsort(mixed(ranked ^ mixed(copies)), kind="stable")])


# The parameters of the auditor, and what they mean for a model and a table.


RATES = {"selection_rate": "decision", "true_positive_rate": "true_positive_rate",
         "false_positive_rate": "false_positive_rate"}  # fmt: skip
"""Numbers about decisions, and what a finding says that it is of."""
NUMBERS = {"score": "score", "mean_prediction": "prediction", "mean_residual": "residual"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What can be set with --set why.KEY=VALUE."""

    metric: tuple[str, ...] = parameter(
        (),
        help="What to divide: any of selection_rate, true_positive_rate, false_positive_rate, score, mean_prediction, "
        "mean_residual; default: the selection rate, and the score before the link where it is exact.",
    )
    allowed: tuple[str, ...] = parameter(
        (), help="Columns in which a difference is allowed: what is left between people who are alike in them."
    )
    together: tuple[str, ...] = parameter(
        (), help="Columns that belong together, joined by +, such as job=a+job=b; by default each is alone."
    )
    people: tuple[str, ...] = parameter(
        (),
        help="Conditions of a group to compare with everybody else, such as age=25:60 or job=clerk; income=:30000 is "
        "open below, job= is a missing value.",
    )
    calls: int = parameter(
        400_000, help="The most rows that the model is asked about for each attribution by sampling.", minimum=1_000
    )
    refit: str | None = parameter(
        None, help="A table to train on again with and without the columns of `without`; default: no training."
    )
    without: tuple[str, ...] = parameter(
        (), help="The columns to leave out with `refit`; default: the one that carries the most of the gap."
    )
    refits: int = parameter(
        1,
        help="How often to train: beyond 1 on resampled rows, whose variance joins the interval.",
        minimum=1,
        maximum=50,
    )


def metrics_of(chosen: Parameters, context: AuditContext) -> list[str]:
    """Return the names of the gaps to divide, as in findings; see `RATES` and `NUMBERS`."""
    task, labelled = context.scorer.task, context.dataset.roles.label is not None
    metrics = {**RATES, **NUMBERS}
    rates = [*RATES, "score", "mean_residual"]
    fit = {"regression": ["mean_prediction", "mean_residual"], "binary": rates}[task]
    for name in chosen.metric:
        if name not in metrics:
            raise ParameterError(
                f"why.metric: there is no metric {name!r}. {did_you_mean(name, metrics, what='metrics')}"
            )
        if name not in fit:
            raise ParameterError(f"why.metric: {name} is not for a {task} task; possible: {', '.join(fit)}")
        if not labelled and name in ("true_positive_rate", "false_positive_rate", "mean_residual"):
            raise ParameterError(f"why.metric: {name} needs the outcome; name its column with `label`")
    default = ["mean_prediction"] if task == "regression" else ["selection_rate", "score"]
    return [metrics[name] for name in dict.fromkeys(chosen.metric or default)]


def players_of(chosen: Parameters, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the columns of every player: those that belong together, and each of the others."""
    groups: list[tuple[str, ...]] = []
    for text in chosen.together:
        names = _joined(text, columns)
        if names is None:
            raise ParameterError(
                f"why.together: {text!r} is not made of columns that the model reads, joined by +; "
                f"it reads: {', '.join(columns)}"
            )
        groups.append(names)
    taken = [name for group in groups for name in group]
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice is not None:
        raise ParameterError(f"why.together: the column {twice!r} is named twice")
    owner = {name: group for group in groups for name in group}
    return list(dict.fromkeys(owner.get(name, (name,)) for name in columns))


def _joined(text: str, columns: Sequence[str]) -> tuple[str, ...] | None:
    """Split names at +, of which names may have some themselves."""
    names, rest = [], text.split("+")
    while rest:
        size = next((k for k in range(len(rest), 0, -1) if "+".join(rest[:k]) in columns), None)
        if size is None:
            return None
        names.append("+".join(rest[:size]))
        rest = rest[size:]
    return tuple(names)


def conditions_of(chosen: Parameters) -> list[dict[str, Any]]:
    """Return the conditions of the group of `people` (see `fairkit.results.findings`)."""
    conditions: list[dict[str, Any]] = []
    for text in chosen.people:
        column, sign, value = text.partition("=")
        low, colon, high = value.partition(":")
        try:
            ends = [float(end) if end else None for end in (low, high)] if colon else []
        except ValueError:
            ends = []
        if not column or not sign:
            raise ParameterError(f"why.people: {text!r} is no condition; write COLUMN=VALUE or COLUMN=LOW:HIGH")
        condition = {"low": ends[0], "high": ends[1]} if ends else {"value": value or None}
        conditions.append({"column": column, **condition})
    return conditions


def allowed_columns(chosen: Parameters, context: AuditContext) -> tuple[str, ...]:
    """Return the allowed columns."""
    roles, data = context.dataset.roles, context.dataset
    sensitive = {column for split in roles.sensitive for column in split.columns}
    said = set() if roles.predictions is None else set(roles.predictions.columns)
    for name in chosen.allowed:
        if name not in data.columns:
            hint = did_you_mean(name, data.columns, what="columns")
            raise DataError(f"why.allowed: {data.name} has no column {name!r}. {hint}")
        reason = (
            "the outcome: people with one outcome are what true and false positive rates compare"
            if name == roles.label
            else "what the model says"
            if name in said
            else "the rows' weight"
            if name == roles.weights
            else "sensitive: between groups nobody is alike in it"
            if name in sensitive
            else None
        )
        if reason is not None:
            raise ParameterError(f"why.allowed: {name!r} is {reason}; allow other columns")
    return tuple(dict.fromkeys(chosen.allowed))


# The parts of rates from rows: counts of both groups, what dependent rows add, and label errors.


def cells_of(outcome: Array, decision: Array, weights: Array | None) -> Cells:
    """Count rows; a chance of a favorable decision counts as such, and weights as the effective number of rows."""
    from fairkit_watch.counting import Cells

    w = np.ones(len(outcome)) if weights is None else weights
    sums = [w @ ((outcome == y) * (decision if yes else 1 - decision)) for y in (0, 1) for yes in (0, 1)]
    return Cells(np.array(sums) * effective(weights, len(outcome)) / w.sum())


def label_error(cells: tuple[Cells, Cells], confidence: float) -> dict[str, float | str] | None:
    """Return the share of one group's positives that, recorded as negative, would make the whole base-rate part.

    Where a share λ of the positives of the group with the smaller base rate p was recorded negative, its base rate is
    ``p / (1 - λ)``, the other's at λ = 1 - p/p'. None where a group has no positives.
    """
    base = np.array([cell.rates()[0] for cell in cells])
    if not (base > 0).all():
        return None
    low = int(np.argmin(base))
    sizes = [cell.counts.sum() for cell in cells]
    # delta method: Var log p = (1 - p) / (p n), of both base rates
    error = float(np.sqrt(sum((1 - p) / (p * n) for p, n in zip(base, sizes, strict=True))))
    z = two_sided(guarded(confidence))
    ratio = base[low] / base[1 - low]
    with np.errstate(over="ignore"):  # of a group that is one row's weight nothing is known
        ends = [1 - ratio * np.exp(z * error), 1 - ratio * np.exp(-z * error)]
    return {
        "of": "group" if low == 0 else "reference",
        "share": float(1 - ratio),
        "low": float(max(ends[0], 0.0)),
        "high": float(max(ends[1], 0.0)),
    }


def design_effects(
    outcome: tuple[Array, Array],
    decision: tuple[Array, Array],
    weights: tuple[Array | None, Array | None],
    clusters: tuple[Array, Array],
    cells: tuple[Cells, Cells],
) -> list[float]:
    """Return by how much clusters multiply the variances of the three parts (at least 1)."""
    from fairkit_watch.counting import gradients, parts_of

    rates = [cell.rates(0.5) for cell in cells]
    pulls = []
    for y, d, w, (pi, t, f), by in zip(outcome, decision, weights, rates, gradients(*rates), strict=True):
        share = np.ones(len(y)) / len(y) if w is None else w / w.sum()
        # a row's influence on base rate, true positive rate and false positive rate
        influence = np.stack([y - pi, y * (d - t) / pi, (1 - y) * (d - f) / (1 - pi)], axis=1)
        pulls.append(share[:, None] * influence @ by.T)
    every = np.concatenate(clusters)
    variance, _ = clustered(by_cluster(np.concatenate(pulls), every), every)
    plain = parts_of(cells).errors ** 2
    with np.errstate(all="ignore"):
        effects = np.nan_to_num(np.maximum(variance / plain, 1.0), nan=1.0, posinf=1.0)
    return [float(value) for value in effects]
