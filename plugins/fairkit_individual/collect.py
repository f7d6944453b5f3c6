"""What a certificate needs of every row: raw columns, what the model says, the label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fairkit.data.batch import Batch
    from fairkit.models.scorer import Predictions

Arrays = dict[str, NDArray[Any]]

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
