"""One pass over the rows: every model scores each batch once, and whoever looks at the scores adds up what it sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.data.roles import value_text
from fairkit.engines.base import add
from fairkit.engines.local import Doubled, pick
from fairkit.statistics import Rows
from fairkit.support.lazy_dataclass import dataclass
from fairkit.support.timings import phase, threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.source import Source
    from fairkit.engines.base import Engine
    from fairkit.models.scorer import Predictions, Scorer
    from fairkit.progress import Progress


class Reader(Protocol):
    """Looks at scored rows, batch by batch."""

    @property
    def columns(self) -> Sequence[str]:
        """What it reads besides the models' columns."""
        ...

    @property
    def spread(self) -> bool:
        """Whether its totals are as large as the rows: they stay where the rows are."""
        ...

    def measure(self, batch: Batch, said: Sequence[Predictions]) -> Any:
        """Turn one batch, with what each model says about it, into a partial result; they add up with ``+``."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """What every piece of the table is measured with."""

    scorers: Sequence[Scorer]  # the models
    readers: Sequence[Reader]  # who looks
    columns: Sequence[str]  # the columns to read
    dataset: Dataset  # knows groups and labels, but holds no rows


def score_once(
    engine: Engine,
    data: Dataset,
    scorers: Sequence[Scorer],
    readers: Sequence[Reader],
    progress: Progress,
    *,
    counts: bool = False,
) -> list[Any]:
    """Score all rows once with every model."""
    wanted = [column for scorer in scorers for column in scorer.columns]
    wanted += [column for reader in readers for column in reader.columns]
    job = Job(scorers, readers, list(dict.fromkeys(wanted)), data.without_rows())
    rows = data.profile.rows + data.profile.dropped_rows
    distinct = data.distinct(job.columns) if counts else None
    if distinct is None:
        doubled = engine.map(
            measure, data.source, engine.share(job), told=lambda done: progress("scoring rows", done, rows)
        )
    else:
        doubled = Doubled(tuple(measure(piece, 0, job) for piece in distinct.pieces(data.name)))
    each = [doubled.derive(pick, number) for number in range(len(readers))]
    return [total.merged() if reader.spread else total.total() for total, reader in zip(each, readers, strict=True)]


def measure(source: Source, start: int, job: Job) -> list[Any]:
    """Score a piece of the table; return each reader's total, None where the piece has no rows for it."""
    _use_threads(job.scorers)
    totals: list[Any] = [None] * len(job.readers)
    for batch in job.dataset.part(source, start).batches(job.columns, partial=True):
        said = [scorer.predict(batch.columns(scorer.columns)) for scorer in job.scorers]
        with phase("measure"):
            for number, reader in enumerate(job.readers):
                totals[number] = add(totals[number], reader.measure(batch, said))
    return totals


def _use_threads(scorers: Sequence[Scorer]) -> None:
    """Let onnxruntime use a worker's threads, not all of the machine's: other workers use the others."""
    most = threads()
    for scorer in scorers:
        model = getattr(scorer, "model", None)
        if most is not None and model is not None and hasattr(model, "use_threads"):
            model.use_threads(most)


# From scored rows to what metrics see: outcomes, decisions and scores of one task, or of each class.


def views(
    batch: Batch, predictions: Predictions, scorer: Scorer, dataset: Dataset
) -> Iterator[tuple[str | None, Rows]]:
    """Return the rows as metrics see them: as one task; of several classes, one for accuracy and one for each."""
    scores: dict[str, Any] = {name: getattr(predictions, name) for name in ("score", "members", "shares")}
    if scorer.task == "regression":
        target = np.full(len(batch), np.nan) if batch.label is None else np.asarray(batch.label, dtype=np.float64)
        low, high = dataset.profile.label_range or (0.0, 0.0)
        yield None, Rows(outcome=target, weights=batch.weights, origin=low + (high - low) / 2, **scores)
    elif scorer.task == "binary":
        outcome = np.zeros(len(batch)) if batch.favorable is None else batch.favorable.astype(np.float64)
        yield None, Rows(outcome=outcome, decision=predictions.decision, weights=batch.weights, **scores)
    elif scorer.task != "ranking":  # its numbers are over queries: `fairkit_rankings`
        yield from _classes(batch, predictions, scorer, dataset)


def _classes(
    batch: Batch, predictions: Predictions, scorer: Scorer, dataset: Dataset
) -> Iterator[tuple[str | None, Rows]]:
    assert predictions.predicted is not None  # noqa: S101 -- multi-class scorers predict classes
    classes = scorer.classes
    favorable = dataset.roles.favorable
    index = np.full(len(batch), -1)
    if batch.label is not None:
        index = np.select([batch.label == value for value in classes], list(range(len(classes))), -1)
    right = (predictions.predicted == index).astype(np.float64)
    yield None, Rows(outcome=np.ones(len(batch)), decision=right, weights=batch.weights)
    for code, value in enumerate(classes):
        if favorable is not None and value_text(value) != value_text(favorable):
            continue
        proba = predictions.probabilities
        yield (
            value_text(value),
            Rows(
                outcome=(index == code).astype(np.float64),
                decision=(predictions.predicted == code).astype(np.float64),
                score=None if proba is None else proba[:, code],
                weights=batch.weights,
            ),
        )
