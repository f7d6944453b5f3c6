"""Mergeable totals: joint tables of all triples of columns, and a sample of rows with the smallest hashes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_subgroups.searching import kernels
from fairkit_subgroups.searching.measures import SOFT, STATES, softened, softened_tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_subgroups.searching.family import Family

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
            {name: np.concatenate([one, other.values[name]]) for name, one in self.values.items()},
        ).smallest()

    def soft(self) -> RowSample:
        """Return the rows with randomized decisions, also those whose decisions are not."""
        if STATES not in self.values:
            return self
        values = {name: one for name, one in self.values.items() if name != STATES}
        return replace(self, values={SOFT: softened(self.values[STATES])} | values)

    def smallest(self) -> RowSample:
        """Leave rows out until there are no more than `SAMPLE`."""
        if len(self.keys) <= SAMPLE:
            return self
        return self.take(np.argpartition(self.keys, SAMPLE)[:SAMPLE])

    def take(self, rows: NDArray[Any]) -> RowSample:
        """Return some rows."""
        chosen = {name: one[rows] for name, one in self.values.items()}
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
        added = {name: one + other.tables[name] for name, one in self.tables.items()}
        return Totals(added, self.rows + other.rows, self.kept + other.kept)

    def soft(self) -> Totals:
        """Return the totals as those of randomized decisions, also where decisions are not."""
        if STATES not in self.tables:
            return self
        tables = {name: one for name, one in self.tables.items() if name != STATES}
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
    for place in range(layers):
        chosen = None if layers == 1 and (layer == 0).all() else np.flatnonzero(layer == place)
        some = codes if chosen is None else codes[:, chosen]
        for name, one in values.items():
            _add(family, some, one if chosen is None else one[chosen], out[name][place])
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
