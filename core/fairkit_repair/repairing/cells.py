"""Decisions on rows outside training as counts, and audits of the planned size drawn from them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fairkit.totals.sums import CellSums
from fairkit_repair.mitigation.split import strata_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairkit.data.table import Groups

    Array = NDArray[np.float64]
    Codes = NDArray[np.int64]

LEVELS = 64
"""Decision probabilities between 0 and 1 are rounded to so many levels."""
_PRIOR = 0.5
REFITTED = 1.5
"""How much the variance of a rate exceeds that of its rows: the file's model is none of those that scored them, and
its rule was learned from all. On ACSIncome, against 200,000 other rows, it was 0.9 to 1.5 times as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The rows that decisions will be judged on: who they are, not what came of them."""

    atoms: Codes  # each calibration row's combination of groups, shape [n], from 0
    members: Mapping[str, Codes]  # by split, the group of every combination, shape [A]
    names: Mapping[str, tuple[str, ...]]  # by split, the groups' names
    sizes: Codes  # how many test rows each combination has, shape [A]
    outcome: Array  # the outcomes of the calibration rows, 0 or 1, shape [n]
    weights: Array | None = None  # shape [n]; None where all rows count the same
    missing: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, groups: Mapping[str, Groups], outcome: Array, weights: Array | None, test: Mapping[str, Codes], rows: int
    ) -> Planned:
        """Cross the splits of the calibration rows, and count the test rows in each combination."""
        length = len(outcome)
        both = [np.concatenate([groups[name].codes, test[name]]) for name in groups]
        codes = strata_of(both, length + rows)
        present, first, places = np.unique(codes[:length], return_index=True, return_inverse=True)
        at = np.searchsorted(present, codes[length:])
        known = present[np.minimum(at, len(present) - 1)] == codes[length:]
        return cls(
            atoms=places.ravel().astype(np.int64),
            members={name: split.codes[first] for name, split in groups.items()},
            names={name: split.names for name, split in groups.items()},
            sizes=np.bincount(at[known], minlength=len(present)),
            outcome=outcome,
            weights=weights,
        )

    def group_sizes(self, split: str) -> Codes:
        """Return the test rows of each group of a split, shape [G]."""
        counts = np.bincount(self.members[split], self.sizes, len(self.names[split]))
        return np.asarray(counts.astype(np.int64))

    def scaled(self, factor: float) -> Planned:
        """Return the same plan with so many times the test rows."""
        return replace(
            self,
            sizes=np.round(self.sizes * factor).astype(np.int64),
            missing={name: round(count * factor) for name, count in self.missing.items()},
        )


@dataclass(frozen=True, slots=True)
class CalibrationCells:
    """Calibration rows counted by combination of groups, outcome and decision probability."""

    planned: Planned  # the rows that decisions will be judged on
    atom: Codes  # of each kind of row, shape [M]
    outcome: Array  # of each kind of row, shape [M]
    chance: Array  # of each kind of row, shape [M]
    count: Array  # rows (effective ones under weights) of each kind, shape [M]
    mass: Array  # the sum of the weights of each kind, shape [M]
    shrink: Array  # effective rows for each row, by combination of groups: 1 without weights, shape [A]

    @classmethod
    def of(cls, planned: Planned, chance: Array) -> CalibrationCells:
        """Count decisions: probabilities of the favorable one for the calibration rows, shape [n]."""
        level = np.round(np.clip(chance, 0.0, 1.0) * LEVELS).astype(np.int64)
        level = np.where((level == 0) & (chance > 0), 1, np.where((level == LEVELS) & (chance < 1), LEVELS - 1, level))
        size = LEVELS + 1
        flat = (2 * planned.atoms + (planned.outcome > 0)) * size + level
        mass: Array = np.bincount(flat, planned.weights, 2 * size * len(planned.sizes)).astype(np.float64)
        # the mean within a level keeps the rates exact
        inner = np.bincount(flat, chance if planned.weights is None else chance * planned.weights, len(mass))
        occupied = np.flatnonzero(mass > 0)
        atom = occupied // (2 * size)
        shrink = _shrink(planned)
        total = np.bincount(atom, mass[occupied], len(planned.sizes))
        rows = np.bincount(planned.atoms, minlength=len(planned.sizes))
        count: Array = mass[occupied] * (rows * shrink / np.where(total > 0, total, 1.0))[atom]
        outcome: Array = ((occupied // size) % 2).astype(np.float64)
        return cls(planned, atom, outcome, inner[occupied] / mass[occupied], count, mass[occupied], shrink)

    def draw(self, rng: np.random.Generator, draws: int, *, fixed_rates: bool = False) -> Array:
        """Draw test counts of every kind, shape [draws, M]: first the rates from what is known of them, then rows.

        The rates of a combination of groups come from a Bayesian bootstrap of its calibration rows, so that their
        error, and that of training again (`REFITTED`), is in the draws; `fixed_rates` takes the rates as they are.
        """
        counts = np.zeros((draws, len(self.count)))
        gammas = (
            np.broadcast_to(self.count, counts.shape)
            if fixed_rates
            else rng.standard_gamma((self.count + _PRIOR / 4) / REFITTED, size=counts.shape)
        )
        for atom in np.unique(self.atom):
            own = self.atom == atom
            share = gammas[:, own] / gammas[:, own].sum(axis=1, keepdims=True)
            size = round(float(self.planned.sizes[atom] * self.shrink[atom]))
            counts[:, own] = rng.multinomial(size, share)
        return counts

    def totals(self, counts: Array, split: str | None) -> CellSums:
        """Return the totals of drawn rows, with a line for each draw and group, shape [draws · G, ...]."""
        features = self._features()
        groups = np.zeros_like(self.planned.sizes) if split is None else self.planned.members[split]
        size = 1 if split is None else len(self.planned.names[split])
        width = features.shape[1]
        spread = np.zeros((len(self.count), size, width))
        spread[np.arange(len(self.count)), groups[self.atom]] = features
        summed = (counts @ spread.reshape(len(self.count), size * width)).reshape(-1, width)
        return CellSums(
            summed[:, 0], summed[:, 1:5], summed[:, 5:21].reshape(-1, 4, 4), summed[:, 21:29].reshape(-1, 2, 4)
        )

    def _features(self) -> Array:
        """Return the addends of a row of each kind: 1, cells, products, powers of h by outcome, [M, 29]."""
        h, size = self.chance, len(self.count)
        cells = np.zeros((size, 4))
        place = (2 * self.outcome).astype(np.int64)
        cells[np.arange(size), place] = 1 - h
        cells[np.arange(size), place + 1] = h
        products = cells[:, :, None] * cells[:, None, :]
        cubes = np.zeros((size, 2, 4))
        cubes[np.arange(size), self.outcome.astype(np.int64)] = np.stack([h**power for power in range(4)], axis=1)
        return np.column_stack([np.ones(size), cells, products.reshape(size, 16), cubes.reshape(size, 8)])


def _shrink(planned: Planned) -> Array:
    """Return Kish's effective rows for each row: (Σ w)² / (n Σ w²)."""
    size = len(planned.sizes)
    if planned.weights is None:
        return np.ones(size)
    rows = np.bincount(planned.atoms, minlength=size)
    mass = np.bincount(planned.atoms, planned.weights, size)
    square = np.bincount(planned.atoms, planned.weights**2, size)
    return np.asarray(np.where(square > 0, mass**2 / np.maximum(rows * square, 1e-300), 1.0))
