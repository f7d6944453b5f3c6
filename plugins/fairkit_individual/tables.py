"""The rows of a certificate, in memory or spread over workers: what the auditors ask of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from fairkit.data.roles import same_value, value_text
from fairkit.errors import DataError, ModelError, ParameterError
from fairkit.support.lazy_dataclass import dataclass
from fairkit_similarity.networks import centred_logits
from fairkit_similarity.search.starting import check_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.data.task import Task
    from fairkit.engines.base import Engine, Spread
    from fairkit.models.scorer import Predictions
    from fairkit_similarity.metric import FairMetric
    from fairkit_similarity.search.problem import Problem
    from fairkit_similarity.spread import PartRows
    from fairkit_similarity.transport import Support

    MakeRewards = Callable[["AuditedRows"], "Rewards"]


class Table(Protocol):
    """All rows of an audit."""

    def __len__(self) -> int: ...

    def take(self, places: Ints) -> AuditedRows:
        """Bring some rows here, by their places among all; these increase."""
        ...

    def part(self, places: Ints) -> MemoryTable:
        """Return the table of some rows, by their places among all; these increase."""
        ...

    def check_memory(self, width: int) -> None:
        """Refuse to begin where the rows, with so many numbers each, do not fit into this machine's memory."""
        ...

    def problem(
        self, metric: FairMetric, rewards: MakeRewards, query_rows: Ints | None, weights: Floats | None
    ) -> tuple[Problem, tuple[str, ...]]:
        """Put rewards on the support, and ask some rows (None: all); give notes too."""
        ...


def table_of(collected: Spread, engine: Engine) -> Table:
    """Return the rows of an audit, from the `Collected` pieces where they lie."""
    return MemoryTable(collected.total().rows()) if engine.here else SpreadTable(collected, engine)


class MemoryTable:
    """Rows in memory."""

    def __init__(self, rows: AuditedRows) -> None:
        self.rows = rows
        self._made: tuple[FairMetric, Support] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, places: Ints) -> MemoryTable:
        """See `Table.part`: the part's distances are those of the whole."""
        table = MemoryTable(self.take(places))
        if self._made is not None:
            metric, support = self._made
            table._made = metric, support.part(places)
        return table

    def _support(self, metric: FairMetric) -> Support:
        """Return where the rows are under a metric; that of the last one is kept."""
        from fairkit_similarity.transport import Support

        if self._made is None or self._made[0] is not metric:
            self._made = metric, Support(metric.transform(self.rows.columns))
        return self._made[1]

    def take(self, places: Ints) -> AuditedRows:
        """See `Table.take`."""
        return self.rows if len(places) == len(self.rows) else self.rows.take(places)

    def check_memory(self, width: int) -> None:
        """See `Table.check_memory`."""
        check_memory(len(self.rows), width)

    def problem(
        self, metric: FairMetric, rewards: MakeRewards, query_rows: Ints | None, weights: Floats | None
    ) -> tuple[Problem, tuple[str, ...]]:
        """See `Table.problem`."""
        support, reward = self._support(metric), rewards(self.rows)
        description: dict[str, Any] = {"rows": query_rows, "weights": weights}
        if reward.label is not None:
            return support.losses(reward.values, reward.label, **description), reward.notes
        return support.outputs(reward.values, reward.target, kind=reward.kind, **description), reward.notes


class SpreadTable:
    """Rows that stay on the workers of an engine."""

    def __init__(self, collected: Spread, engine: Engine) -> None:
        self.engine = engine
        self._rows = collected.derive(_rows)
        self._starts = np.cumsum([0, *self._rows.derive(_length).collect()])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, places: Ints) -> AuditedRows:
        """See `Table.take`."""
        bounds = np.searchsorted(places, self._starts)
        each = [
            places[low:high] - start
            for low, high, start in zip(bounds[:-1], bounds[1:], self._starts[:-1], strict=True)
        ]
        return join(self._rows.numbered(_take, each).collect())

    def part(self, places: Ints) -> MemoryTable:
        """See `Table.part`."""
        return MemoryTable(self.take(places))

    def check_memory(self, width: int) -> None:
        """See `Table.check_memory`: every worker holds its part only."""

    def problem(
        self, metric: FairMetric, rewards: MakeRewards, query_rows: Ints | None, weights: Floats | None
    ) -> tuple[Problem, tuple[str, ...]]:
        """See `Table.problem`."""
        from fairkit_similarity.spread import SpreadTransport
        from fairkit_similarity.transport import KINDS, finite

        chosen = np.arange(len(self)) if query_rows is None else query_rows
        queries = self.take(chosen)
        reward = rewards(queries)
        shared = self.engine.share((metric, rewards))
        parts = self._rows.numbered(_part, self._starts[:-1].tolist(), shared)
        if reward.label is not None:
            values = finite(reward.values, "loss").T
            own_losses, target = values[np.arange(len(values)), reward.label], np.zeros((len(values), 0))
        else:
            values = finite(reward.values, "output")
            target = finite(values if reward.target is None else reward.target, "target")
            gap = np.abs(values - target)
            own_losses = (gap**2 if reward.kind == "squared" else gap).mean(axis=1)
        problem = SpreadTransport(
            self.engine,
            parts,
            kind=KINDS[reward.kind],
            z=metric.transform(queries.columns),
            asked=chosen,
            values=values,
            label=np.zeros(len(values), np.int64) if reward.label is None else reward.label,
            target=target,
            own=own_losses,
            weights=weights,
        )
        return problem, reward.notes


def _rows(collected: Any) -> AuditedRows:
    rows: AuditedRows = collected.rows()
    return rows


def _length(rows: AuditedRows) -> int:
    return len(rows)


def _take(rows: AuditedRows, places: Ints) -> AuditedRows:
    return rows.take(places)


def _part(rows: AuditedRows, start: int, shared: Sequence[Any]) -> PartRows:
    """Make the support of one piece."""
    from fairkit_similarity.spread import PartRows
    from fairkit_similarity.transport import KINDS, finite

    metric, rewards = shared
    found = rewards(rows)
    return PartRows.of(metric.transform(rows.columns), finite(found.values, "reward"), KINDS[found.kind], start)


# What mass can gain by moving: losses under each label, or outputs that are compared.


Floats: TypeAlias = "NDArray[np.float64]"
Ints: TypeAlias = "NDArray[np.int64]"
Loss = Literal["logistic", "zero_one", "squared", "absolute"]
Output = Literal["logit", "probability", "score"]
Difference = Literal["mean", "single"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewards:
    """What each of n rows is worth where mass goes."""

    kind: str  # `losses`, or how outputs are compared: `squared` or `absolute`
    values: Floats  # losses under each label, shape (K, n), or outputs, shape (n, K)
    label: Ints | None = None  # losses: each row's own label, shape (n,)
    target: Floats | None = None  # outputs: what each row's are compared with, shape (n, K); None for its own outputs
    notes: tuple[str, ...] = ()  # what a reader must know


CLIP = 1e-6
"""Probabilities are kept this far from 0 and 1 before a logarithm is taken."""


def label_codes(rows: AuditedRows, task: Task, classes: Sequence[Any]) -> Ints:
    """Return each row's label as 0 ... K - 1; binary: 1 is favorable."""
    label = rows.get("label")
    if label is None:
        raise DataError("restricted-dro needs the label column, to know each row's loss; name it with `label`")
    if task == "binary":
        favorable = rows.get("favorable")
        if favorable is None:
            raise DataError("restricted-dro needs the label's favorable value; name it with `favorable`")
        return favorable.astype(np.int64)
    values, inverse = np.unique(label.astype(str) if label.dtype.kind == "O" else label, return_inverse=True)
    codes = np.full(len(values), -1)
    for index, value in enumerate(values.tolist()):
        for code, known in enumerate(classes):
            if same_value(value, known):
                codes[index] = code
    if (codes < 0).any():
        unknown = value_text(values[codes < 0][0])
        raise DataError(f"the label {unknown!r} is none of the model's classes: {', '.join(map(value_text, classes))}")
    return codes[inverse].astype(np.int64)


def class_losses(rows: AuditedRows, task: Task, loss: Loss) -> Floats:
    """Return the loss of every row under each label, shape (K, n).

    Binary labels are 0 (unfavorable) and 1; a randomized model's zero-one loss is the expected one.
    """
    if loss == "zero_one":
        return _zero_one(rows, task)
    probability = _probabilities(rows, task, loss)
    if loss == "logistic":
        return np.ascontiguousarray(-np.log(np.clip(probability, CLIP, 1.0 - CLIP)).T)
    if loss == "absolute":
        return np.ascontiguousarray(1.0 - probability.T)
    if task == "binary":
        return np.ascontiguousarray((1.0 - probability.T) ** 2)
    square = (probability**2).sum(axis=1)
    return np.ascontiguousarray((square[:, None] - 2.0 * probability + 1.0).T)


def regression_pair(rows: AuditedRows, loss: Loss) -> tuple[Floats, Floats]:
    """Return the predictions and the true values, each of shape (n, 1)."""
    if loss not in ("squared", "absolute"):
        raise ParameterError(f"restricted-dro: loss={loss} is for classes; a regression takes squared or absolute")
    label, score = rows.get("label"), rows.get("score")
    if label is None or score is None:
        raise DataError("restricted-dro needs the label column, to know each row's loss; name it with `label`")
    return score.astype(np.float64)[:, None], label.astype(np.float64)[:, None]


def outputs(
    rows: AuditedRows, task: Task, output: Output, *, difference: Difference = "mean"
) -> tuple[Floats, str | None]:
    """Return the outputs h that `dif` compares, and what a reader must know about them.

    d_Y is the mean of squared differences over their columns; logits are those of
    `fairkit_similarity.networks.centred_logits`, or with ``difference="single"`` the former ones: the log-odds of two
    classes, and several logits as the model shows them.
    """
    if task == "regression":
        if output != "score":
            raise ParameterError(f"dif: a regression model has no {output}; use output=score")
        score = rows.get("score")
        return np.asarray(score, dtype=np.float64)[:, None], None
    if output == "logit":
        logits, note = _logits(rows, task)
        return (logits if difference == "single" else centred_logits(logits)), note
    if output == "score" and task == "multiclass":
        raise ParameterError("dif: a multi-class model has no single score; use output=logit or probability")
    probability = _probabilities(rows, task, "output")
    return (probability[:, 1:] if task == "binary" else probability), None


def _logits(rows: AuditedRows, task: Task) -> tuple[Floats, str | None]:
    shown = rows.get("logits")
    if shown is not None:
        return shown.reshape(len(shown), -1).astype(np.float64), None
    probability = np.clip(_probabilities(rows, task, "output"), CLIP, 1.0 - CLIP)
    note = f"The model shows no logits: they are made from its probabilities, clipped at {CLIP:g}."
    if task == "binary":
        return np.log(probability[:, 1:] / probability[:, :1]), note
    logs = np.log(probability)
    return logs - logs.mean(axis=1, keepdims=True), note


def shown_scores(rows: AuditedRows, task: Task) -> Floats | None:
    """Return the number that people see for each row: the score; multi-class: the largest probability."""
    if task == "multiclass":
        probability = rows.get("probabilities")
        return None if probability is None else probability.max(axis=1).astype(np.float64)
    score = rows.get("score")
    if score is None:
        score = rows.get("decision")
    return None if score is None else score.astype(np.float64)


def _probabilities(rows: AuditedRows, task: Task, use: str) -> Floats:
    name = "score" if task == "binary" else "probabilities"
    values = rows.get(name)
    if values is None:
        what = f"loss={use}" if use != "output" else "output=logit or probability"
        advice = "use loss=zero_one" if use != "output" else "export it with its probabilities"
        raise ModelError(f"the model gives labels only, no probabilities, and {what} needs them; {advice}")
    values = values.astype(np.float64)
    if task == "binary":
        return np.column_stack([1.0 - values, values])
    return values


def _zero_one(rows: AuditedRows, task: Task) -> Floats:
    if task == "binary":
        decision = np.asarray(rows.get("decision"), dtype=np.float64)
        return np.stack([decision, 1.0 - decision])
    predicted = np.asarray(rows.get("predicted"), dtype=np.int64)
    probability = rows.get("probabilities")
    count = probability.shape[1] if probability is not None else int(predicted.max()) + 1
    wrong: Floats = (predicted[None, :] != np.arange(count)[:, None]).astype(np.float64)
    return wrong


# What a certificate needs of every row: raw columns, what the model says, the label.


Arrays: TypeAlias = "dict[str, NDArray[Any]]"

_FIELDS = ("score", "decision", "probabilities", "predicted", "logits")


@dataclass(frozen=True, slots=True)
class Collected:
    """Rows of one or several batches; adding puts them one after the other."""

    parts: tuple[Arrays, ...]

    def __add__(self, other: Collected) -> Collected:
        return Collected(self.parts + other.parts)

    def rows(self) -> AuditedRows:
        """Join the batches."""
        ordered = sorted(self.parts, key=lambda part: int(part["rows"][0]) if len(part["rows"]) else -1)
        return _of([part.items() for part in ordered])


@dataclass(frozen=True, slots=True)
class AuditedRows:
    """All rows of an audit."""

    columns: Arrays  # raw columns by name
    fields: Arrays  # everything else, by the names of `Collected`

    def __len__(self) -> int:
        return len(self.fields["rows"])

    def get(self, name: str) -> NDArray[Any] | None:
        """Return one field; None where the data or the model has none."""
        return self.fields.get(name)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Row numbers in the audited table."""
        return self.fields["rows"]

    def take(self, places: NDArray[np.int64]) -> AuditedRows:
        """Return some rows."""
        fields = {name: values[places] for name, values in self.fields.items()}
        return AuditedRows(columns={name: values[places] for name, values in self.columns.items()}, fields=fields)

    def pick(self, names: Sequence[str]) -> Arrays:
        """Return some raw columns."""
        return {name: self.columns[name] for name in names}


def join(parts: Sequence[AuditedRows]) -> AuditedRows:
    """Put rows after each other."""
    return _of([part.fields.items() for part in parts])


def _of(parts: Sequence[Iterable[tuple[str, NDArray[Any]]]]) -> AuditedRows:
    gathered: dict[str, list[NDArray[Any]]] = {}
    for part in parts:
        for name, values in part:
            gathered.setdefault(name, []).append(values)
    joined = {name: np.concatenate(values) for name, values in gathered.items()}
    columns = {name[7:]: values for name, values in joined.items() if name.startswith("column:")}
    return AuditedRows(columns=columns, fields=joined)


def collect(batch: Batch, predictions: Predictions, columns: Sequence[str]) -> Collected:
    """Keep one batch."""
    part: Arrays = {"rows": batch.rows}
    for name in ("label", "favorable", "weights"):
        values = getattr(batch, name)
        if values is not None:
            part[name] = values
    for name in _FIELDS:
        values = getattr(predictions, name)
        if values is not None:
            part[name] = np.asarray(values)
    for name in columns:
        part[f"column:{name}"] = batch.column(name)
    return Collected((part,))
