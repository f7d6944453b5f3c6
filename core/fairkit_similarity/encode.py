"""Raw columns to numbers: one-hot categories, standardised numbers, missing values as a feature of their own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np

from fairkit.data.roles import MISSING_GROUP, value_text
from fairkit.errors import DataError, did_you_mean
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

Columns: TypeAlias = "Mapping[str, NDArray[Any]]"
Floats: TypeAlias = "NDArray[np.float64]"
Ints: TypeAlias = "NDArray[np.int64]"

MAX_CATEGORIES = 1_000
"""A text column with more values is a name or an identifier, and no feature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnEncoding:
    """How one raw column becomes features.

    A number becomes ``(x - mean) / scale``, and a second feature, 1 where it is missing (the first is 0 there), if any
    was missing when the encoding was learned. A category becomes one 0-1 feature for each value, or a single
    one where there are two values. A value that was never seen has zeros only.
    """

    name: str
    kind: Literal["number", "category"]
    mean: float = 0.0
    scale: float = 1.0
    missing: bool = False
    categories: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """The features' names, such as ``age`` and ``workclass=Private``."""
        if self.kind == "number":
            return (self.name, f"{self.name}={MISSING_GROUP}") if self.missing else (self.name,)
        return tuple(f"{self.name}={category}" for category in self.shown)

    @property
    def shown(self) -> tuple[str, ...]:
        """The categories that have a feature of their own: of two values the second."""
        return self.categories[1:] if len(self.categories) == 2 else self.categories

    @classmethod
    def learn(cls, name: str, values: NDArray[Any], *, standardise: bool = True) -> Self:
        """Look at a column.

        Raises
        ------
        DataError
            It holds infinite numbers or too many distinct texts.
        """
        if values.dtype.kind in "OUS":
            categories = tuple(sorted(set(distinct(values)[0])))
            if len(categories) > MAX_CATEGORIES:
                raise DataError(
                    f"column {name!r} has {len(categories)} distinct texts: it looks like a name or an identifier; "
                    "leave it out of the features or of the metric's columns"
                )
            return cls(name=name, kind="category", categories=categories)
        numbers = _numbers(name, values)
        finite = numbers[~np.isnan(numbers)]
        mean = float(finite.mean()) if standardise and len(finite) else 0.0
        spread = float(finite.std()) if standardise and len(finite) else 1.0
        scale = spread if spread > 0.0 else 1.0
        return cls(name=name, kind="number", mean=mean, scale=scale, missing=len(finite) < len(numbers))

    def encode(self, values: NDArray[Any]) -> Floats:
        """Return the features of n rows, shape (n, features)."""
        if self.kind == "number":
            if values.dtype.kind in "OUS":
                raise DataError(
                    f"column {self.name!r} holds text here; the fair metric was made for numbers in this column"
                )
            numbers = (_numbers(self.name, values) - self.mean) / self.scale
            gone = np.isnan(numbers)
            filled = np.where(gone, 0.0, numbers)[:, None]
            return np.column_stack([filled, gone.astype(float)]) if self.missing else filled
        code = self.codes(values)
        out = np.zeros((len(code), len(self.features)))
        coded = np.flatnonzero(code >= 0)
        out[coded, code[coded]] = 1.0
        return out

    def codes(self, values: NDArray[Any]) -> Ints:
        """Return which of a category's features is 1 in each row, shape (n,); -1 where none is."""
        positions = {category: index for index, category in enumerate(self.shown)}
        texts, code = distinct(values)
        table = np.array([positions.get(text, -1) for text in texts], dtype=np.int64)
        return table[code]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """How a table's raw columns become a matrix of numbers: each column's encoding, in order."""

    columns: tuple[ColumnEncoding, ...]

    @classmethod
    def learn(cls, columns: Columns, *, standardise: bool = True) -> Self:
        """Look at raw columns: text (object or str arrays), or numbers (NaN where missing).

        Raises
        ------
        DataError
            There is no column or no row, or one cannot be encoded.
        """
        if not columns or not len(next(iter(columns.values()))):
            raise DataError("a fair metric needs at least one column and one row")
        return cls(
            columns=tuple(
                ColumnEncoding.learn(name, np.asarray(values), standardise=standardise)
                for name, values in columns.items()
            )
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The raw columns that are needed."""
        return tuple(column.name for column in self.columns)

    @property
    def features(self) -> tuple[str, ...]:
        """The features' names, one for each column of the matrix."""
        return tuple(feature for column in self.columns for feature in column.features)

    def places(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the numbers of the features that come from some raw columns.

        Raises
        ------
        DataError
            A name is unknown.
        """
        for name in names:
            if name not in self.names:
                hint = did_you_mean(name, self.names, what="columns")
                raise DataError(f"the fair metric's features have no column {name!r}. {hint}")
        owner = [column.name for column in self.columns for _ in column.features]
        return np.flatnonzero([name in names for name in owner])

    def encode(self, columns: Columns) -> Floats:
        """Return the matrix, shape (n, features).

        Raises
        ------
        DataError
            A column is missing, or holds text where numbers are needed.
        """
        absent = [name for name in self.names if name not in columns]
        if absent:
            hint = did_you_mean(absent[0], columns, what="columns")
            raise DataError(
                f"the fair metric needs the column{'s' * (len(absent) > 1)} {', '.join(map(repr, absent))}, "
                f"which the data does not have. {hint}"
            )
        out = np.empty((len(columns[self.names[0]]), len(self.features)))
        start = 0
        for column in self.columns:
            end = start + len(column.features)
            out[:, start:end] = column.encode(np.asarray(columns[column.name]))
            start = end
        return out

    def to_dict(self) -> list[dict[str, Any]]:
        """Return plain JSON values."""
        return [record_of(column) for column in self.columns]

    @classmethod
    def from_dict(cls, records: Sequence[Mapping[str, Any]]) -> Self:
        """Read what `to_dict` gave."""
        return cls(
            columns=tuple(
                ColumnEncoding(
                    name=str(record["name"]),
                    kind="number" if record["kind"] == "number" else "category",
                    mean=float(record["mean"]),
                    scale=float(record["scale"]),
                    missing=bool(record["missing"]),
                    categories=tuple(str(category) for category in record["categories"]),
                )
                for record in records
            )
        )


def _numbers(name: str, values: NDArray[Any]) -> Floats:
    numbers = values.astype(np.float64)
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        raise DataError(f"column {name!r} has {infinite} infinite value(s), the first in row {row}; clip or drop them")
    return numbers


def distinct(values: NDArray[Any]) -> tuple[list[str], Ints]:
    """Return the texts of a column, several times where several values have one, and which of them each row has."""
    numbers: dict[Any, int] = {}
    cells = values.tolist()
    if all(kind in (str, type(None)) for kind in set(map(type, cells))):
        numbers = {value: number for number, value in enumerate(dict.fromkeys(cells))}
        return [value_text(value) for value in numbers], np.array([numbers[value] for value in cells], np.int64)
    texts = [value_text(value) for value in cells]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return list(numbers), np.array([numbers[text] for text in texts], np.int64)


# Encoded columns as they are multiplied: numbers as a matrix, categories of many values as codes.


FEW = 4
"""Columns with at most so many categories join the matrix of numbers, where products are fastest."""


@dataclass(frozen=True, slots=True, eq=False)
class _Codes:
    """One column of many categories."""

    places: Ints  # the numbers of its features, shape (v,)
    code: Ints  # which of them is 1 in each row, shape (n,); v where all are 0

    @property
    def size(self) -> int:
        """How many codes there are, with that of none."""
        return len(self.places) + 1


class Design:
    """The features of n rows, with a constant feature at the end, without those of some columns."""

    def __init__(self, encoder: Encoder, columns: Columns, without: str) -> None:
        dense, sparse, positions, start = [], [], [], 0
        for encoding in encoder.columns:
            width = len(encoding.features)
            places = np.arange(start, start + width)
            start += width
            if encoding.name == without:
                continue
            positions.append(places)
            values = np.asarray(columns[encoding.name])
            if encoding.kind == "number" or width <= FEW:
                dense.append((places, encoding.encode(values)))
            else:
                code = encoding.codes(values)
                sparse.append(_Codes(places, np.where(code < 0, width, code)))
        rows = len(np.asarray(columns[encoder.columns[0].name]))
        self.kept: Ints = np.concatenate(positions) if positions else np.zeros(0, np.int64)
        self._place = np.full(start + 1, -1)
        self._place[self.kept] = np.arange(len(self.kept))
        self._place[-1] = len(self.kept)
        constant = (np.array([start]), np.ones((rows, 1)))
        self._numbers: Floats = np.ascontiguousarray(np.hstack([block for _, block in [*dense, constant]]).T)
        self._of_numbers = self._place[np.concatenate([places for places, _ in [*dense, constant]])]
        self._codes = [_Codes(self._place[each.places], each.code) for each in sparse]
        self.rows = rows

    @property
    def width(self) -> int:
        """How many coefficients there are, with the constant's."""
        return len(self.kept) + 1

    def times(self, coefficients: Floats) -> Floats:
        """Return the linear predictor of each row, shape (n,)."""
        total: Floats = coefficients[self._of_numbers] @ self._numbers
        for column in self._codes:
            total += np.append(coefficients[column.places], 0.0)[column.code]
        return total

    def transposed(self, values: Floats) -> Floats:
        """Return Xᵀ v for one number v for each row, shape (d + 1,)."""
        total = np.empty(self.width)
        total[self._of_numbers] = self._numbers @ values
        for column in self._codes:
            total[column.places] = _counted(column.code, values, column.size)[:-1]
        return total

    def grams(self, weights: Floats) -> Floats:
        """Return Xᵀ diag(w) X for each of K rows of weights, shape (K, d + 1, d + 1)."""
        total = np.zeros((len(weights), self.width, self.width))
        for k, each in enumerate(weights):
            weighted = self._numbers * each
            total[k][np.ix_(self._of_numbers, self._of_numbers)] = weighted @ self._numbers.T
            for column in self._codes:
                block = np.stack([_counted(column.code, row, column.size)[:-1] for row in weighted])
                _put(total[k], self._of_numbers, column.places, block)
                total[k][column.places, column.places] = block[-1]  # the constant's row: sums of weights
        for first, second in itertools.combinations(self._codes, 2):
            code = first.code * second.size + second.code
            for k, each in enumerate(weights):
                counted = _counted(code, each, first.size * second.size).reshape(first.size, second.size)
                _put(total[k], first.places, second.places, counted[:-1, :-1])
        return total

    def dense(self) -> Floats:
        """Return the matrix itself, shape (n, d), without the constant."""
        whole = np.zeros((self.rows, self.width))
        whole[:, self._of_numbers] = self._numbers.T
        for column in self._codes:
            coded = np.flatnonzero(column.code < len(column.places))
            whole[coded, column.places[column.code[coded]]] = 1.0
        return whole[:, :-1]


def _put(total: Floats, rows: Ints, columns: Ints, block: Floats) -> None:
    """Put a block at its place and its mirror's."""
    total[np.ix_(rows, columns)] = block
    total[np.ix_(columns, rows)] = block.T


def _counted(code: Ints, weights: Floats, size: int) -> Floats:
    """Return the sum of the weights of each code."""
    return np.bincount(code, weights, size).astype(np.float64, copy=False)
