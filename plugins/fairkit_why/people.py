"""The rows of an audit as attributions need them: raw columns, outcomes, predictions, groups, in one fixed order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.auditing.views import views
from fairkit.data.arrow import as_numpy
from fairkit.data.clusters import words_of
from fairkit.data.duplicates import mixed
from fairkit.data.roles import value_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.data.batch import Batch
    from fairkit.models.scorer import Predictions

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]

PEOPLE = ""
"""In place of a sensitive column: the group that conditions describe, and everybody else."""
_NUMBERS = ("outcome", "decision", "score", "weights", "clusters")


@dataclass(frozen=True, eq=False)
class Collected:
    """Some rows; adding two joins them."""

    columns: Mapping[str, tuple[pa.Array, ...]]  # raw columns, each as pieces
    groups: Mapping[str, tuple[Ints, ...]]
    numbers: Mapping[str, tuple[Array, ...]]
    label: str | None = None  # of several classes, the one that all others stand against; else None

    def __add__(self, other: Collected) -> Collected:
        return Collected(
            {name: pieces + other.columns[name] for name, pieces in self.columns.items()},
            {name: pieces + other.groups[name] for name, pieces in self.groups.items()},
            {name: pieces + other.numbers[name] for name, pieces in self.numbers.items()},
            self.label,
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
            inside = np.logical_and.reduce([_fulfils(one, as_numpy(batch.arrow(one["column"]))) for one in people])
            groups[PEOPLE] = (np.where(inside, 0, 1),)
        return cls({name: (batch.arrow(name),) for name in columns}, groups, numbers, label)


def _fulfils(condition: Mapping[str, Any], values: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which values fulfil a condition (see `fairkit.results.conditions`)."""
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
        told = (numbers["outcome"], numbers["weights"], numbers["clusters"], *groups.values())
        for values in told:  # not what the model says, which rounding may change on another machine
            hashes = mixed(hashes ^ np.asarray(values + 0.0, dtype=np.float64).view(np.uint64))
        self.order, self.label = _shuffled(hashes), collected.label
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

    words = words_of(column)
    absent = as_numpy(pc.is_null(column, nan_is_null=True))
    if absent.any():
        words = np.where(absent, np.uint64(0x5BD1E995), words)
    return words


def _shuffled(hashes: NDArray[np.uint64]) -> Ints:
    """Return the order of the rows by their hash and how many equal rows came before."""
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    start = np.concatenate([[True], ranked[1:] != ranked[:-1]]) if len(hashes) else np.zeros(0, dtype=bool)
    first = np.maximum.accumulate(np.where(start, np.arange(len(hashes)), 0))
    copies = (np.arange(len(hashes)) - first).astype(np.uint64)
    return np.asarray(order[np.argsort(mixed(ranked ^ mixed(copies)), kind="stable")])
