"""Whom an adversary is asked about: the rows that a constraint is over, and what each of them counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from fairkit.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.mitigators import Groups, Table

LABELS = {
    "demographic_parity": (None,),
    "equal_opportunity": (1,),
    "predictive_equality": (0,),
    "equalized_odds": (0, 1),
}
"""The labels within which rates are compared; None: over all rows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Protected:
    """One split for one adversary."""

    name: str  # the split's name
    names: tuple[str, ...]  # the groups that are compared: codes 0, 1,
    codes: NDArray[np.int64]  # shape (n,): each row's group; 0 where the row does not count
    share: NDArray[np.float64]
    cells: NDArray[np.int64]  # shape (n,): the group within its label, -1 where the row does not count

    @classmethod
    def of(cls, table: Table, constraint: str, name: str, names: Sequence[str]) -> Self:
        """Find the rows of some groups of a split; groups that a table does not have are compared with nobody."""
        groups = table.groups[name]
        own = {group: code for code, group in enumerate(names)}
        codes = np.array([own.get(group, -1) for group in groups.names], dtype=np.int64)[groups.codes]
        cells = np.full(len(table), -1, dtype=np.int64)
        for number, label in enumerate(LABELS[constraint]):
            rows = _of(table, label) & (codes >= 0)
            cells[rows] = number * len(names) + codes[rows]
        weights = np.where(cells >= 0, table.row_weights(), 0.0)
        total = np.bincount(np.maximum(cells, 0), weights, minlength=len(LABELS[constraint]) * len(names))
        share = np.divide(weights, total[np.maximum(cells, 0)], out=np.zeros(len(table)), where=weights > 0)
        return cls(
            name=name,
            names=tuple(names),
            codes=np.maximum(codes, 0),
            share=share * len(table) / max(float(share.sum()), 1e-300),
            cells=cells,
        )

    @property
    def count(self) -> int:
        """How many groups are compared."""
        return len(self.names)

    def disparity(self, accepted: NDArray[np.bool_], weights: NDArray[np.float64]) -> float:
        """Return the largest difference of two groups' rates within a label, in [0, 1]; 0 where nothing is compared."""
        inside = self.cells >= 0
        size = self.count * (int(self.cells.max(initial=0)) // self.count + 1)
        total = np.bincount(self.cells[inside], weights[inside], minlength=size).reshape(-1, self.count)
        chosen = np.bincount(self.cells[inside], (weights * accepted)[inside], minlength=size).reshape(-1, self.count)
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = chosen / total
        gaps = [np.ptp(row[np.isfinite(row)]) for row in rates if np.isfinite(row).sum() > 1]
        return float(max(gaps, default=0.0))


def protect(
    table: Table, constraint: str, wanted: Sequence[str], least: int
) -> tuple[list[Protected], tuple[str, ...]]:
    """Find the groups to protect in every split, and say which are too small."""
    if not table.groups:
        raise DataError(f"{table.name}: this method needs a sensitive column; name it with `sensitive`")
    for name in wanted:
        if name not in table.groups:
            hint = did_you_mean(name, table.groups, what="splits")
            raise DataError(f"{table.name}: there is no sensitive split {name!r}. {hint}")
    protected: list[Protected] = []
    notes: list[str] = []
    for name in wanted or table.groups:
        groups = table.groups[name]
        large = _large(groups, table, constraint, least)
        present = [code for code in range(len(groups.names)) if groups.sizes()[code]]
        small = [groups.names[code] for code in present if code not in large]
        if small and len(present) > 1:
            notes.append(
                f"Groups of {name} with fewer than {least} rows that {constraint} is over were left out: "
                f"{', '.join(small)}."
            )
        if len(present) > 1 and len(large) < 2:
            raise DataError(
                f"{table.name}: fewer than two groups of {name!r} have {least} rows that {constraint} is over; "
                "join small groups, or lower `min_group`"
            )
        if len(large) > 1:
            protected.append(Protected.of(table, constraint, name, [groups.names[code] for code in large]))
    return protected, tuple(notes)


def _large(groups: Groups, table: Table, constraint: str, least: int) -> list[int]:
    counts = [np.bincount(groups.codes[_of(table, label)], minlength=len(groups.names)) for label in LABELS[constraint]]
    weighted = np.bincount(groups.codes, table.row_weights(), minlength=len(groups.names))
    return [code for code in range(len(groups.names)) if min(c[code] for c in counts) >= least and weighted[code] > 0]


def _of(table: Table, label: int | None) -> NDArray[np.bool_]:
    return np.ones(len(table), dtype=bool) if label is None else table.target == label
