"""Paired counts: what each alternative decides otherwise than the model in use, by group and outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.errors import DataError
from fairkit.statistics import Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PairedCounts:
    """Rows by group, outcome and the two decisions; all rates, costs and their paired variances follow."""

    base: Whole  # rows by group, outcome and the decision of the model in use, favorable last, shape [G, 2, 2]
    lost: Whole  # rows that it accepts and the alternative does not, by group and outcome, shape [K, G, 2]
    gained: Whole  # the reverse

    def __len__(self) -> int:
        return len(self.lost)

    @classmethod
    def of_rows(
        cls,
        codes: Whole,
        favorable: Array,
        decided: NDArray[np.bool_],
        others: Sequence[NDArray[np.bool_]],
        groups: int,
    ) -> Self:
        """Count rows: their groups in [0, groups), outcomes, decisions in use and of each alternative, shape [n]."""
        cell = 2 * codes + (favorable > 0)

        def by_cell(mask: NDArray[np.bool_]) -> Whole:
            return np.bincount(cell[mask], minlength=2 * groups).reshape(groups, 2).astype(np.int64)

        base = np.stack([by_cell(~decided), by_cell(decided)], axis=2)
        empty = np.zeros((0, groups, 2), dtype=np.int64)
        lost = [by_cell(decided & ~other) for other in others]
        gained = [by_cell(~decided & other) for other in others]
        return cls(base, np.stack(lost) if lost else empty, np.stack(gained) if gained else empty)

    @classmethod
    def from_lists(cls, base: Any, lines: Sequence[Sequence[int]]) -> Self:
        """Read what `lines` and `base` wrote; refuse what cannot be counts.

        Raises
        ------
        DataError
            A number is no count, or larger than its margin.
        """
        try:
            margins = _whole(base)
            groups = len(margins)
            flat = _whole(lines).reshape(len(lines), 2, groups, 2)
        except (ValueError, TypeError) as error:
            raise DataError("the counts of the alternatives are not whole numbers by group and outcome") from error
        if margins.ndim != 3 or margins.shape[1:] != (2, 2) or (margins < 0).any():
            raise DataError("the counts of the model in use are not rows by group, outcome and decision")
        found = cls(margins, flat[:, 0], flat[:, 1])
        if (flat < 0).any() or (found.lost > margins[..., 1]).any() or (found.gained > margins[..., 0]).any():
            raise DataError("an alternative decides more rows otherwise than there are")
        return found

    def lines(self) -> list[list[int]]:
        """Return the counts of each alternative as one flat line: lost, then gained, by group and outcome."""
        return np.stack([self.lost, self.gained], axis=1).reshape(len(self), 4 * len(self.base)).tolist()

    def take(self, places: Sequence[int]) -> PairedCounts:
        """Return some of the alternatives."""
        chosen = np.asarray(places, dtype=np.int64)
        return PairedCounts(self.base, self.lost[chosen], self.gained[chosen])

    def joint(self, place: int) -> Sums:
        """Return joint sums of (TN, FP, FN, TP) of both models by group, as from the rows themselves."""
        cells = self.cells(place)
        groups = len(cells)
        first, second = np.zeros((groups, 8)), np.zeros((groups, 8, 8))
        for outcome in (0, 1):
            for before in (0, 1):
                for after in (0, 1):
                    a, b = 2 * outcome + before, 4 + 2 * outcome + after
                    rows = cells[:, outcome, before, after]
                    first[:, a] += rows
                    first[:, b] += rows
                    second[:, a, a] += rows
                    second[:, b, b] += rows
                    second[:, a, b] += rows
                    second[:, b, a] += rows
        return Sums(cells.sum(axis=(1, 2, 3)).astype(np.float64), first, second)

    def cells(self, place: int) -> Whole:
        """Return rows by group, outcome, decision in use and the alternative's decision, shape [G, 2, 2, 2]."""
        lost, gained = self.lost[place], self.gained[place]
        refused = np.stack([self.base[..., 0] - gained, gained], axis=2)
        accepted = np.stack([lost, self.base[..., 1] - lost], axis=2)
        return np.stack([refused, accepted], axis=2)

    @property
    def apart(self) -> Array:
        """The share of rows that each alternative decides otherwise, shape [K]."""
        return np.asarray((self.lost + self.gained).sum(axis=(1, 2)) / self.base.sum())


def _whole(values: Any) -> Whole:
    found = np.asarray(values)
    if found.size and not np.issubdtype(found.dtype, np.integer):
        raise ValueError
    return found.astype(np.int64)
