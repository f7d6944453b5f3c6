"""The encoder of raw columns: one matrix of float32, computed alike in numpy and in an ONNX graph."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.data.roles import list_columns
from fairkit.errors import DataError
from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.write.graph import RESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.learners import TextMode
    from fairkit_onnx.write.graph import GraphBuilder


MAX_ONE_HOT = 255
"""Of a text column with more values, the most frequent so many get a column of their own."""


class Encoding(Protocol):
    """Raw columns to one float32 matrix, alike in numpy and in a graph; `Encoder` is the usual one.

    Attributes
    ----------
    names
        The matrix's column names.
    categorical
        Places in the matrix that hold codes rather than numbers.
    """

    @property
    def names(self) -> list[str]: ...  # noqa: D102 - see the class

    @property
    def categorical(self) -> list[int]: ...  # noqa: D102 - see the class

    def transform(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Encode raw columns, each of shape [n], to shape [n, len(names)]."""
        ...

    def add_to(self, graph: GraphBuilder) -> str:
        """Put the encoding into a graph; gives the matrix's name, shape [rows, len(names)]."""
        ...


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A numeric column: ``(x - shift) * scale``, missing values first replaced by `fill` unless it is NaN.

    With `indicator`, a second column is 1 where the value was missing.
    """

    name: str
    shift: float = 0.0
    scale: float = 1.0
    fill: float = float("nan")
    indicator: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns that it becomes."""
        return (self.name, f"{self.name} is missing") if self.indicator else (self.name,)

    def transform(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Encode in numpy, shape [n, len(outputs)]; every step is float32, as in the graph."""
        raw = as_float32(values, self.name)
        missing = np.isnan(raw)
        filled = raw if np.isnan(self.fill) else np.where(missing, np.float32(self.fill), raw)
        if (self.shift, self.scale) != (0.0, 1.0):
            filled = (filled - np.float32(self.shift)) * np.float32(self.scale)
        columns = [filled, missing.astype(np.float32)] if self.indicator else [filled]
        return np.stack(columns, axis=1)

    def add_to(self, graph: GraphBuilder) -> list[str]:
        """Encode in the graph; gives values of shape [rows, 1]."""
        raw = graph.input(self.name, "float")
        outputs = [raw]
        needs_missing = self.indicator or not np.isnan(self.fill)
        missing = graph.node("IsNaN", [raw]) if needs_missing else ""
        if not np.isnan(self.fill):
            outputs[0] = graph.node("Where", [missing, self.fill, raw])
        if (self.shift, self.scale) != (0.0, 1.0):
            shifted = graph.node("Sub", [outputs[0], self.shift])
            outputs[0] = graph.node("Mul", [shifted, self.scale])
        if self.indicator:
            outputs.append(graph.node("Cast", [missing], to=1))
        return outputs


def add_text_codes(graph: GraphBuilder, value: str, categories: Sequence[str]) -> str:
    """Add the codes of texts, float32: a text's place among the categories; `UNSEEN` where it is none of them."""
    return graph.node(
        "LabelEncoder",
        [value],
        domain="ai.onnx.ml",
        keys_strings=list(categories),
        values_floats=[float(code) for code in range(len(categories))],
        default_float=UNSEEN,
    )


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A text column: one code, or one column for each category. An unseen value is `UNSEEN`, or all zeros."""

    name: str
    categories: tuple[str, ...]
    mode: TextMode

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns that it becomes."""
        if self.mode == "ordinal":
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)

    def transform(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Encode in numpy, shape [n, len(outputs)]."""
        codes = text_codes(values, self.categories).astype(np.float32)[:, None]
        if self.mode == "ordinal":
            return codes
        places = np.arange(len(self.categories), dtype=np.float32)
        return np.equal(codes, places).astype(np.float32)

    def add_to(self, graph: GraphBuilder) -> list[str]:
        """Encode in the graph; gives values of shape [rows, len(outputs)] together."""
        codes = add_text_codes(graph, graph.input(self.name, "string"), self.categories)
        if self.mode == "ordinal":
            return [codes]
        places = graph.constant([np.arange(len(self.categories))])
        return [graph.node("Cast", [graph.node("Equal", [codes, places])], to=1)]


@dataclass(frozen=True, slots=True)
class Encoder:
    """Raw columns to one float32 matrix."""

    columns: tuple[NumberColumn | TextColumn, ...]

    @property
    def names(self) -> list[str]:
        """The matrix's column names."""
        return [name for column in self.columns for name in column.outputs]

    @property
    def categorical(self) -> list[int]:
        """Places in the matrix that hold codes rather than numbers."""
        flags = [
            isinstance(column, TextColumn) and column.mode == "ordinal"
            for column in self.columns
            for _ in column.outputs
        ]
        return [index for index, flag in enumerate(flags) if flag]

    def transform(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Encode raw columns, each of shape [n], to shape [n, len(names)].

        Raises
        ------
        DataError
            A column holds text where training had numbers.
        """
        rows = len(columns[self.columns[0].name])
        matrix = np.empty((rows, len(self.names)), dtype=np.float32)
        start = 0
        for column in self.columns:
            encoded = column.transform(columns[column.name])
            matrix[:, start : start + encoded.shape[1]] = encoded
            start += encoded.shape[1]
        return matrix

    def add_to(self, graph: GraphBuilder) -> str:
        """Put the encoder into a graph; gives the matrix's name, shape [rows, len(names)].

        A list column is one input, `emb` of shape [rows, k] for the columns `emb[0]`, `emb[1]`, ...
        """
        parts: list[str] = []
        for name, places in runs([column.name for column in self.columns]):
            run = [self.columns[index] for index in places]
            numbers = [column for column in run if isinstance(column, NumberColumn) and not column.indicator]
            filled = {not np.isnan(number.fill) for number in numbers}
            if name and len(numbers) == len(run) and len(filled) == 1:
                settings = np.array([[number.fill, number.shift, number.scale] for number in numbers], np.float32)
                parts.append(add_list(graph, name, *settings.T))
            else:
                parts += [part for column in run for part in column.add_to(graph)]
        return parts[0] if len(parts) == 1 else graph.node("Concat", parts, axis=1)


def fit_encoder(
    columns: Mapping[str, NDArray[Any]],
    features: Sequence[str],
    *,
    text: TextMode,
    standardise: bool = False,
    fill: bool = False,
    weights: NDArray[np.float64] | None = None,
) -> Encoder:
    """Learn an encoder from training rows.

    Parameters
    ----------
    columns
        Raw columns, each of shape [n].
    features
        Which of them, in order.
    text
        ``ordinal`` for learners with categorical splits, ``onehot`` for the others. Missing text is a
        category of its own where training has some.
    standardise
        Scale numbers to mean 0 and standard deviation 1 (constant columns are only shifted).
    fill
        Replace missing numbers by the mean and say so in a column of their own, for learners without NaN.
    weights
        For the means, shape [n].

    Returns
    -------
    Encoder
        Deterministic: categories are sorted.

    Raises
    ------
    DataError
        No features, infinite numbers, or a column of mixed text and numbers.
    """
    if not features:
        raise DataError("there are no feature columns to learn from; name them with `features`")
    fitted: list[NumberColumn | TextColumn] = []
    for name in features:
        values = columns[name]
        if values.dtype.kind in "OUS" and not _is_bool(values):
            fitted.append(TextColumn(name, _categories(values, text), text))
        else:
            fitted.append(_fit_number(name, values, standardise, fill, weights))
    return Encoder(tuple(fitted))


def _fit_number(
    name: str, values: NDArray[Any], standardise: bool, fill: bool, weights: NDArray[np.float64] | None
) -> NumberColumn:
    raw = as_float32(values, name)
    missing = np.isnan(raw)
    infinite = int(np.isinf(raw).sum())
    if infinite:
        raise DataError(
            f"feature {name!r} holds {infinite} infinite numbers (or numbers beyond 3.4e38); "
            "replace them or leave the column out with `drop`"
        )
    if not (standardise or fill):
        return NumberColumn(name)
    numbers = raw[~missing].astype(np.float64)
    weights_kept = None if weights is None or not weights[~missing].sum() else weights[~missing]
    mean = float(np.average(numbers, weights=weights_kept)) if len(numbers) else 0.0
    spread = float(np.sqrt(np.average((numbers - mean) ** 2, weights=weights_kept))) if len(numbers) else 0.0
    scale = 1 / spread if standardise and spread > 1e-12 * max(1.0, abs(mean)) else 1.0
    return NumberColumn(
        name,
        shift=float(np.float32(mean)) if standardise else 0.0,
        scale=float(np.float32(scale)),
        fill=float(np.float32(mean)) if fill else float("nan"),
        indicator=fill and bool(missing.any()),
    )


def _categories(values: NDArray[Any], mode: TextMode) -> tuple[str, ...]:
    counts: Counter[str] = Counter()
    for value, count in Counter(values.tolist()).items():
        counts[MISSING_TEXT if absent(value) else str(value)] += count
    texts = sorted(counts)
    if mode == "onehot" and len(texts) > MAX_ONE_HOT:
        texts = sorted(sorted(texts, key=lambda text: -counts[text])[:MAX_ONE_HOT])
    return tuple(texts)


def _is_bool(values: NDArray[Any]) -> bool:
    kinds = {type(value) for value in values[:1000].tolist() if value is not None}
    return values.dtype.kind == "O" and bool(kinds) and kinds <= {bool, np.bool_}


# Columns of lists in a graph: one input of shape [rows, k] in place of k inputs of shape [rows, 1].


def runs(names: Sequence[str]) -> list[tuple[str, range]]:
    """Return the places of an encoder's columns in order: a list's together under its name, others alone under "".

    A list of one place, one whose places do not stand beside each other in order, and one with a name that fairkit's
    own inputs and outputs have stay in single columns.
    """
    starts = {
        names.index(places[0]): (name, len(places))
        for name, places in list_columns(names).items()
        if len(places) > 1 and name not in RESERVED and list(names[names.index(places[0]) :][: len(places)]) == places
    }
    result, start = [], 0
    while start < len(names):
        name, width = starts.get(start, ("", 1))
        result.append((name, range(start, start + width)))
        start += width
    return result


def add_list(
    graph: GraphBuilder, name: str, fill: NDArray[np.float32], shift: NDArray[np.float32], scale: NDArray[np.float32]
) -> str:
    """Encode a list as `NumberColumn` encodes each of its places."""
    value = graph.input(name, "float", len(fill))
    if not np.isnan(fill).any():
        value = graph.node("Where", [graph.node("IsNaN", [value]), graph.constant(fill[None]), value])
    if (shift != 0).any() or (scale != 1).any():
        value = graph.node("Sub", [value, graph.constant(shift[None])])
        value = graph.node("Mul", [value, graph.constant(scale[None])])
    return value


# Cells of raw columns as an exported graph takes them: missing text, codes of text, numbers as float32.


MISSING_TEXT = ""
"""How a missing text cell is fed to a graph, whose strings cannot be absent."""
UNSEEN = -1.0
"""The code of a text value that training did not see (and of a missing one, if it saw none)."""


def text_codes(values: NDArray[Any], categories: Sequence[str]) -> NDArray[np.int64]:
    """Return each value's place among the categories, shape [n]; -1 where it is none of them."""
    places = {category: code for code, category in enumerate(categories)}
    cells = values.tolist()
    codes = {cell: places.get(MISSING_TEXT if absent(cell) else str(cell), int(UNSEEN)) for cell in set(cells)}
    return np.fromiter(map(codes.__getitem__, cells), dtype=np.int64, count=len(cells))


def as_float32(values: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Cast a numeric or boolean column as a graph's float input would."""
    try:
        if values.dtype.kind == "O":
            values = np.array([np.nan if value is None else value for value in values.tolist()], dtype=float)
        return values.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"column {name!r} holds text where the model was trained on numbers ({error})") from error


def absent(value: Any) -> bool:
    """Tell whether a cell of a text column is missing."""
    return value is None or value != value  # noqa: PLR0124 - only NaN (and pandas' NA) differs from itself


# An encoder followed by a matrix, computed in numpy and in a graph so that trees behind it see the same.


GRID = 2.0**20
"""Results are multiples of 1 / GRID: sums taken in another order differ in the sixteenth digit, these do not."""
_DOUBLE, _FLOAT = 11, 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearEncoding:
    """z = (x - center) · matrix behind an encoder.

    Products and sums are float64 and then rounded to a grid: a tree may split anywhere between two values,
    so that numpy and a graph must agree on every bit, in batches of any size.

    Attributes
    ----------
    encoder
        From raw columns to x, shape [n, d]; best with columns of about unit size.
    matrix
        Shape [d, k].
    center
        Shape [d].
    names
        The k columns of z.
    """

    encoder: Encoding
    matrix: NDArray[np.float64]
    center: NDArray[np.float64]
    names: list[str]

    @property
    def categorical(self) -> list[int]:
        """None: z holds numbers."""
        return []

    def transform(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Encode raw columns, each of shape [n], to z, shape [n, k]."""
        x = self.encoder.transform(columns).astype(np.float64)
        z = np.rint((x - self.center) @ self.matrix * GRID) / GRID
        return z.astype(np.float32)

    def add_to(self, graph: GraphBuilder) -> str:
        """Put the encoder and the product into a graph; gives the name of z, shape [rows, k]."""
        x = graph.node("Cast", [self.encoder.add_to(graph)], to=_DOUBLE)
        moved = graph.node("Sub", [x, graph.constant(self.center.reshape(1, -1), np.float64)])
        product = graph.node("MatMul", [moved, graph.constant(self.matrix, np.float64)])
        scaled = graph.node("Mul", [product, graph.constant([[GRID]], np.float64)])
        rounded = graph.node("Div", [graph.node("Round", [scaled]), graph.constant([[GRID]], np.float64)])
        return graph.node("Cast", [rounded], to=_FLOAT)
