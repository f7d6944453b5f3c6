"""Mergeable totals: joint tables of all triples of columns, and a sample of rows with the smallest hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_subgroups.searching import kernels
from fairkit_subgroups.searching.measures import SOFT, STATES, softened, softened_tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_subgroups.searching.cells import Family

    Array = NDArray[np.float64]


SAMPLE = 200_000
"""Rows that are kept in cells, to tell which groups are the same people: those with the smallest hashes."""


@dataclass(frozen=True, slots=True)
class RowSample:
    """Rows in cells, at most `SAMPLE`, with the smallest hashes of their numbers in the table."""

    keys: NDArray[np.uint64]  # the hashes, shape [n]
    codes: NDArray[np.uint8]  # uint8, shape [d, n]
    layer: NDArray[np.int64]  # which copy of the tables each row is counted in, shape [n]
    values: dict[str, NDArray[Any]]

    def __add__(self, other: RowSample) -> RowSample:
        if (STATES in self.values) != (STATES in other.values):
            return self.soft() + other.soft()
        return RowSample(
            np.concatenate([self.keys, other.keys]),
            np.concatenate([self.codes, other.codes], axis=1),
            np.concatenate([self.layer, other.layer]),
            {name: np.concatenate([value, other.values[name]]) for name, value in self.values.items()},
        ).smallest()

    def soft(self) -> RowSample:
        """Return the rows with randomized decisions, also those whose decisions are not."""
        if STATES not in self.values:
            return self
        values = {name: value for name, value in self.values.items() if name != STATES}
        return replace(self, values={SOFT: softened(self.values[STATES])} | values)

    def smallest(self) -> RowSample:
        """Leave rows out until there are no more than `SAMPLE`."""
        if len(self.keys) <= SAMPLE:
            return self
        return self.take(np.argpartition(self.keys, SAMPLE)[:SAMPLE])

    def take(self, rows: NDArray[Any]) -> RowSample:
        """Return some rows."""
        chosen = {name: value[rows] for name, value in self.values.items()}
        return RowSample(self.keys[rows], np.ascontiguousarray(self.codes[:, rows]), self.layer[rows], chosen)


@dataclass(frozen=True, slots=True)
class Totals:
    """Tables by statistic, int64, shape [layers, cells, J]; the number of rows; the rows that are kept.

    All sums are of whole numbers: they are the same in whatever order rows come.
    """

    tables: dict[str, NDArray[np.int64]]
    rows: int
    kept: RowSample

    def __add__(self, other: Totals) -> Totals:
        if (STATES in self.tables) != (STATES in other.tables):
            return self.soft() + other.soft()
        added = {name: table + other.tables[name] for name, table in self.tables.items()}
        return Totals(added, self.rows + other.rows, self.kept + other.kept)

    def soft(self) -> Totals:
        """Return the totals as those of randomized decisions, also where decisions are not."""
        if STATES not in self.tables:
            return self
        tables = {name: table for name, table in self.tables.items() if name != STATES}
        return Totals({SOFT: softened_tables(self.tables[STATES])} | tables, self.rows, self.kept.soft())


def count(
    family: Family,
    codes: NDArray[np.uint8],
    layer: NDArray[np.int64],
    values: dict[str, NDArray[Any]],
    widths: dict[str, int],
    layers: int,
) -> dict[str, NDArray[np.int64]]:
    """Count rows in every table."""
    out = {name: np.zeros((layers, family.cells, width), dtype=np.int64) for name, width in widths.items()}
    for index in range(layers):
        chosen = None if layers == 1 and (layer == 0).all() else np.flatnonzero(layer == index)
        some = codes if chosen is None else codes[:, chosen]
        for name, value in values.items():
            _add(family, some, value if chosen is None else value[chosen], out[name][index])
    return out


def _add(family: Family, codes: NDArray[np.uint8], values: NDArray[Any], out: NDArray[np.int64]) -> None:
    for start in range(0, codes.shape[1], kernels.CHUNK):
        part = np.ascontiguousarray(codes[:, start : start + kernels.CHUNK])
        some = np.ascontiguousarray(values[start : start + kernels.CHUNK])
        if some.ndim == 1:
            flat = out.reshape(-1)
            kernels.count_states(part, some, family.sizes, family.offsets, out.shape[1], flat)
        else:
            kernels.count_sums(part, some, family.sizes, family.offsets, out)


def hashes(rows: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Return a number for each row number that looks random: SplitMix64 (Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        z = (rows.astype(np.uint64) + np.uint64(1 + seed)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


# The group whose scores are worth moving most: one Newton step of the log loss, found among all groups.


@dataclass(frozen=True, slots=True)
class Step:
    """A group with the step for its logits, Σ (y - p) / (Σ p (1 - p) + λ), and what that gains."""

    table: int
    number: int
    amount: float
    gain: float


@numba.njit(cache=True, nogil=True)
def _best(sums: Any, runs_a: Any, rows: float, shrinkage: float) -> tuple[float, int, float]:
    best, number, amount = 0.0, -1, 0.0
    width = sums.shape[2]
    for r in range(len(runs_a)):
        first, last = runs_a[r, 0], runs_a[r, 1] + 1
        for k in range(width):
            if sums[0, last, k] - sums[0, first, k] < rows:
                continue
            g = sums[1, last, k] - sums[1, first, k]
            h = sums[2, last, k] - sums[2, first, k]
            # second-order gain of a Newton step of the log loss: g² / (2 (h + λ)) at g / (h + λ)
            gain = 0.5 * g * g / (h + shrinkage)
            if gain > best:
                best, number, amount = gain, r * width + k, g / (h + shrinkage)
    return best, number, amount


class Residuals:
    """Joint tables of rows, Σ w (y - p) and Σ w p (1 - p), kept up to date while scores move."""

    def __init__(self, family: Family, codes: NDArray[np.uint8], outcome: Array, weights: Array) -> None:
        self.family, self.codes, self.outcome, self.weights = family, codes, outcome, weights
        self._tables = np.zeros((family.cells, 3))

    def set(self, score: Array) -> None:
        """Count all rows with their scores, shape [n]."""
        self._tables[:] = 0.0
        w = self.weights
        parts = [np.ones(len(score)), w * (self.outcome - score), w * score * (1 - score)]
        self._add(np.arange(len(score)), np.stack(parts, axis=1))

    def move(self, rows: NDArray[np.int64], before: Array, after: Array) -> None:
        """Change the scores of some rows."""
        w = self.weights[rows]
        parts = [np.zeros(len(rows)), w * (before - after), w * (after * (1 - after) - before * (1 - before))]
        self._add(rows, np.stack(parts, axis=1))

    def best(self, rows: float, shrinkage: float) -> Step | None:
        """Return the group of at least so many rows whose step gains most; None where none gains."""
        laid = self.family.laid_out(self._tables)
        step: Step | None = None
        for table, layout in enumerate(self.family.places):
            block = np.ascontiguousarray(laid[:, layout.start : layout.stop].reshape(-1, *layout.shape))
            sums = kernels.boxes(block, layout.runs[1], layout.runs[2])
            gain, number, amount = _best(sums, layout.runs[0], rows, shrinkage)
            if number >= 0 and (step is None or gain > step.gain * (1 + 1e-9)):
                step = Step(table, int(number), float(amount), float(gain))
        return step

    def _add(self, rows: NDArray[np.int64], values: Array) -> None:
        family = self.family
        for start in range(0, len(rows), kernels.CHUNK):
            some = rows[start : start + kernels.CHUNK]
            codes = np.ascontiguousarray(self.codes[:, some])
            part = np.ascontiguousarray(values[start : start + kernels.CHUNK])
            kernels.count_sums(codes, part, family.sizes, family.offsets, self._tables)
