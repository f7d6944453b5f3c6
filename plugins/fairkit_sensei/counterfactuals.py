"""Counterfactuals: other versions of a row, by named columns that take other values, or given with the rows."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.data.roles import value_meant
from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.support.lazy_dataclass import dataclass
from fairkit_similarity.outside import read_given

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Table
    from fairkit_onnx.write.encode import Encoder

    Features = NDArray[np.float32]


Tensor = Any
Columns = Mapping[str, "NDArray[Any]"]

MOST_VALUES = 50
"""A column with more distinct values is not flipped through all of them."""


class Counterfactuals(Protocol):
    """What counterfactual logit pairing needs."""

    def draw(self, x: Tensor, rows: NDArray[np.int64], rng: np.random.Generator) -> Tensor:
        """Return one random counterfactual of each row of a batch, shape (b, d)."""


@dataclass(frozen=True, slots=True)
class Flip:
    """Columns that change together, and the combinations of values that they take."""

    columns: tuple[str, ...]
    combinations: tuple[tuple[Any, ...], ...]


def find_flips(
    names: Sequence[str], columns: Columns, values: Mapping[str, Any], readable: Sequence[str]
) -> list[Flip]:
    """Read the names of flips, ``sex+race`` for columns that change together."""
    if not names:
        raise ParameterError(
            "counterfactuals need the columns to flip: name them, as in the parameter `sensitive=sex,race`"
        )
    unused = [name for name in values if name not in {part for flip in names for part in flip.split("+")}]
    if unused:
        raise ParameterError(f"values.{unused[0]} belongs to no flip; add it, as in sensitive={unused[0]}")
    flips = []
    for name in names:
        parts = tuple(name.split("+"))
        for part in parts:
            if part not in readable:
                hint = did_you_mean(part, readable, what="columns")
                raise ParameterError(
                    f"sensitive={name}: the network reads no column {part!r}, so nothing changes. {hint}"
                )
        options = [_options(part, columns[part], values.get(part)) for part in parts]
        combinations = tuple(itertools.product(*options))
        if len(combinations) < 2:
            raise ParameterError(f"sensitive={name} has one combination of values only; there is no other version")
        flips.append(Flip(parts, combinations))
    return flips


def _options(name: str, values: NDArray[Any], wanted: Any) -> list[Any]:
    present = _distinct(values)
    if wanted is None:
        if len(present) > MOST_VALUES:
            raise ParameterError(
                f"sensitive: the column {name!r} has {len(present)} distinct values; name some, as in values.{name}=A,B"
            )
        return present
    listed = [part.strip() for part in wanted.split(",")] if isinstance(wanted, str) else list(wanted)
    return [value_meant(value, present, f"sensitive: the column {name!r}") for value in listed]


def _distinct(values: NDArray[Any]) -> list[Any]:
    """The values that occur, in order, missing ones aside."""
    values_known = {value for value in values.tolist() if value is not None and value == value}  # noqa: PLR0124 - NaN
    return sorted(values_known, key=lambda value: (isinstance(value, str), value))


class ColumnFlips:
    """Counterfactuals of encoded rows, by flips of raw columns."""

    def __init__(self, flips: Sequence[Flip], encoder: Encoder, columns: Columns) -> None:
        self._flips = [_encoded(flip, encoder, columns) for flip in flips]

    def draw(self, x: Tensor, rows: NDArray[np.int64], rng: np.random.Generator) -> Tensor:
        """See `Counterfactuals`: a random flip, and a random combination other than the row's own."""
        import torch

        which = rng.integers(len(self._flips), size=len(rows))
        flipped = x.clone()
        for index, (places, values, flips_of_row) in enumerate(self._flips):
            here = np.flatnonzero(which == index)
            if not len(here):
                continue
            mine = flips_of_row[rows[here]]
            inside = mine >= 0
            choice = (rng.random(len(here)) * (len(values) - inside)).astype(np.int64)
            choice += inside & (choice >= mine)
            at = torch.as_tensor(here, device=x.device)[:, None], torch.as_tensor(places, device=x.device)
            flipped[at] = torch.as_tensor(values[choice], device=x.device, dtype=x.dtype)
        return flipped


def _encoded(
    flip: Flip, encoder: Encoder, columns: Columns
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """Return the features of a flip, their values (combinations, features), and each row's own combination or -1."""
    places, start = {}, 0
    for column in encoder.columns:
        places[column.name] = np.arange(start, start + len(column.outputs))
        start += len(column.outputs)
    by_name = {column.name: column for column in encoder.columns}
    pieces = []
    for index, name in enumerate(flip.columns):
        cells = [combination[index] for combination in flip.combinations]
        raw: NDArray[Any] = np.array(cells, dtype=columns[name].dtype)
        pieces.append(by_name[name].transform(raw))
    codes = np.full(len(columns[flip.columns[0]]), -1)
    for number, combination in enumerate(flip.combinations):
        same = [columns[name] == value for name, value in zip(flip.columns, combination, strict=True)]
        codes[np.logical_and.reduce(same)] = number
    return np.concatenate([places[name] for name in flip.columns]), np.concatenate(pieces, axis=1), codes


class GivenCounterfactuals:
    """Counterfactuals that came with the rows, such as embeddings of sentences with swapped words."""

    def __init__(
        self, features: NDArray[Any], source: NDArray[np.int64], rows: int, places: NDArray[np.int64] | None = None
    ) -> None:
        self.features = np.asarray(features, dtype=np.float32)
        source = np.asarray(source, dtype=np.int64)
        places = np.arange(len(self.features)) if places is None else places
        if self.features.ndim != 2 or source.shape != places.shape or not len(source):
            raise DataError(
                f"counterfactuals of shape {self.features.shape} and sources of shape {source.shape} do not fit; "
                "give one row of features and one source for each"
            )
        if source.min() < 0 or source.max() >= rows:
            raise DataError(f"a counterfactual belongs to row {source.max()}, but there are {rows} rows, from 0")
        order = np.argsort(source, kind="stable")
        self._places = places[order]
        self._first = np.searchsorted(source[order], np.arange(rows + 1))

    @property
    def paired(self) -> int:
        """How many rows have another version."""
        return int((np.diff(self._first) > 0).sum())

    def draw(self, x: Tensor, rows: NDArray[np.int64], rng: np.random.Generator) -> Tensor:
        """See `Counterfactuals`."""
        import torch

        first, count = self._first[rows], self._first[rows + 1] - self._first[rows]
        have = np.flatnonzero(count > 0)
        choice = first[have] + (rng.random(len(have)) * count[have]).astype(np.int64)
        flipped = x.clone()
        taken = self.features[self._places[choice]]
        flipped[torch.as_tensor(have, device=x.device)] = torch.as_tensor(taken, device=x.device, dtype=x.dtype)
        return flipped


# Versions of rows from a file, for counterfactual logit pairing: a row is found among them by its features.


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """Rows in groups: each is a version of the others of its group."""

    name: str  # the file
    features: Features  # encoded, shape (p, d), float32
    originals: NDArray[np.int64]  # the group of each, shape (p,)

    @classmethod
    def read(cls, path: str, of: str, table: Table, encoder: Encoder) -> Versions:
        """Read a file whose column `of` names what each row is a version of."""
        pairs = read_given(path, of, table.features)
        features = encoder.transform(pairs.columns)
        if not np.isfinite(features).all():
            raise DataError(f"{path}: encoded features hold numbers that are not finite; fill them in")
        return cls(path, features, pairs.originals())

    def of(self, x: Features) -> GivenCounterfactuals:
        """Return the other versions of rows: those of every group that holds a row of the same features."""
        source, places = self._pairs(x)
        if not len(source):
            raise DataError(
                f"{self.name}: no training row has another version in it; it must hold the rows themselves, with the "
                "same features, beside their other versions, and one value of the column `of` for all versions of a row"
            )
        return GivenCounterfactuals(self.features, source, len(x), places)

    def _pairs(self, x: Features) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return rows, and the place of another version of each: a row comes as often as it has some."""
        mine, keys = _digests(x), _digests(self.features)
        members: dict[int, list[int]] = {}
        groups: dict[bytes, list[int]] = {}
        for index, (digest, group) in enumerate(zip(keys, self.originals.tolist(), strict=True)):
            members.setdefault(group, []).append(index)
            groups.setdefault(digest, []).append(group)
        source, places = [], []
        for row, digest in enumerate(mine):
            for group in dict.fromkeys(groups.get(digest, ())):
                others = [row for row in members[group] if keys[row] != digest]
                source += [row] * len(others)
                places += others
        return np.array(source, np.int64), np.array(places, np.int64)

    def note(self, found: GivenCounterfactuals, rows: int) -> tuple[str, ...]:
        """Say how many rows have versions, where some have none."""
        if found.paired == rows:
            return ()
        return (
            f"{found.paired:,} of {rows:,} training rows have other versions in {self.name}; the others are paired "
            "with themselves.",
        )


def _digests(x: Features) -> list[bytes]:
    """Return a digest of each row; 0 and -0 are the same."""
    plain = np.ascontiguousarray(x + np.float32(0))
    return [hashlib.blake2b(row, digest_size=16).digest() for row in plain]
