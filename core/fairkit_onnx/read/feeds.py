"""From a table's columns to a graph's inputs: names are matched, types are checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow_types import as_numbers
from fairkit.data.roles import list_columns, shortened
from fairkit.errors import DataError, ModelError
from fairkit.models.column_names import check_renamed, no_column
from fairkit.models.python import roc_area
from fairkit.support.lazy_dataclass import dataclass, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.models.scorer import Columns, Predictions


RANDOM_INPUT = "u"
"""The input of a randomized model: a draw in [0, 1) that whoever deploys the model provides."""

_DTYPES: Mapping[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}


@dataclass(frozen=True, slots=True)
class GraphInput:
    """One input of the graph, as onnxruntime describes it: dtype and shape (None where it is free)."""

    name: str
    kind: str
    shape: tuple[int | None, ...]

    @property
    def width(self) -> int | None:
        """The number of columns it takes; None where it is free."""
        return 1 if len(self.shape) < 2 else self.shape[1]

    @property
    def dtype(self) -> Any:
        """The numpy type that it takes."""
        if self.kind not in _DTYPES:
            raise ModelError(
                f"the model's input {self.name!r} has the type {self.kind}; "
                f"a table can feed {', '.join(sorted(_DTYPES))}"
            )
        return _DTYPES[self.kind]


@dataclass(frozen=True, slots=True)
class Feed:
    """An input and the columns that fill it, in order; `guessed` where it is the table's and nobody stated it."""

    input: GraphInput
    columns: tuple[str, ...]
    guessed: bool = False

    def build(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Make the input's array, shape [n, width] (or [n] where the graph wants a vector)."""
        dtype = self.input.dtype
        arrays = [_convert(columns[name], name, self.input, dtype) for name in self.columns]
        if len(self.input.shape) == 1:
            return arrays[0]
        if len(arrays) == 1:
            return arrays[0].reshape(-1, 1)
        matrix = np.empty((len(arrays[0]), len(arrays)), dtype=dtype)
        for index, array in enumerate(arrays):
            matrix[:, index] = array
        return matrix


def built(feeds: Sequence[Feed], columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of inputs by name, made of raw columns."""
    return {feed.input.name: feed.build(columns) for feed in feeds}


def match_inputs(
    inputs: Sequence[GraphInput],
    columns: Sequence[str],
    features: Sequence[str],
    *,
    declared: bool,
    table: str,
    rename: Mapping[str, str] | None = None,
) -> tuple[list[Feed], list[str]]:
    """Find the columns for every input.

    An input of width one takes the column of its name, or failing that the only column whose name is the
    same after every character outside [A-Za-z0-9_] became ``_``. What is left takes the features in order.
    """
    lists = list_columns(columns)
    check_renamed(rename, [graph_input.name for graph_input in inputs], [*columns, *lists])
    renamed = {new: old for old, new in (rename or {}).items()}
    feeds: dict[str, Feed] = {}
    for graph_input in inputs:
        # a lone input may hold all the features that were named, whatever it is called
        whole = len(inputs) == 1 and declared and graph_input.width in (None, len(features))
        if graph_input.width in (1, None) and not whole:
            column = renamed.get(graph_input.name) or _column_for(graph_input.name, columns)
            if column is not None:
                feeds[graph_input.name] = Feed(graph_input, (column,))
    notes: list[str] = []
    for graph_input in inputs:
        if graph_input.name not in feeds:
            name = renamed.get(graph_input.name) or _list_for(graph_input, inputs, lists, features, declared)
            if name in lists:
                feeds[graph_input.name] = _list_feed(graph_input, lists[name], table)
                if name != graph_input.name and graph_input.name not in renamed:
                    notes.append(f"The input {graph_input.name!r} gets the lists of the column {name!r}.")
    left = [graph_input for graph_input in inputs if graph_input.name not in feeds]
    if left:
        used = {column for feed in feeds.values() for column in feed.columns}
        rest = [name for name in features if name not in used]
        if sum(graph_input.width or 0 for graph_input in left) == len(features):
            rest = list(features)  # a matrix may hold a column that is an input of its own too
        filled = _fill(left, rest, columns, table, feeds)
        if not declared:
            filled = [replace(feed, guessed=len(feed.columns) > 1) for feed in filled]
        feeds.update({feed.input.name: feed for feed in filled})
    return [feeds[graph_input.name] for graph_input in inputs], notes


def _list_for(
    graph_input: GraphInput,
    inputs: Sequence[GraphInput],
    lists: Mapping[str, Sequence[str]],
    features: Sequence[str],
    declared: bool,
) -> str | None:
    """Return the list column of the input's name; for a lone matrix that the features do not fit, the one that does."""
    if declared and len(inputs) == 1:
        return None
    if graph_input.name in lists:
        return graph_input.name
    fits = [name for name, columns in lists.items() if len(columns) == graph_input.width]
    return fits[0] if len(inputs) == len(fits) == 1 and graph_input.width != len(features) else None


def _list_feed(graph_input: GraphInput, columns: Sequence[str], table: str) -> Feed:
    if graph_input.width not in (None, len(columns)):
        raise DataError(
            f"the model's input {graph_input.name!r} takes {graph_input.width} numbers, but the lists of {table} have "
            f"{len(columns)} ({shortened(columns)}); give the embedding that the model was trained on, or name the "
            "columns in order with `features`"
        )
    return Feed(graph_input, tuple(columns))


def _column_for(name: str, columns: Sequence[str]) -> str | None:
    if name in columns:
        return name
    near = [column for column in columns if _identifier(column) == _identifier(name)]
    if len(near) > 1:
        raise DataError(
            f"the model's input {name!r} could be any of the columns {', '.join(map(repr, near))}; "
            "rename all but one of them"
        )
    return near[0] if near else None


def _identifier(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _fill(
    left: Sequence[GraphInput], features: Sequence[str], columns: Sequence[str], table: str, matched: Mapping[str, Feed]
) -> list[Feed]:
    """Assign to the unmatched inputs the features in order."""
    narrow = [graph_input for graph_input in left if graph_input.width == 1]
    if narrow and (matched or 1 < len(left) == len(narrow)):
        used = {column for feed in matched.values() for column in feed.columns}
        free = [column for column in columns if column not in used]
        raise DataError(no_column(table, [graph_input.name for graph_input in narrow], columns, free))
    widths = [graph_input.width for graph_input in left]
    if widths.count(None) == 1:
        widths[widths.index(None)] = len(features) - sum(width for width in widths if width is not None)
    total = sum(width or 0 for width in widths)
    if total != len(features) or None in widths:
        shown = shortened(features)
        raise DataError(
            f"the model's input {left[0].name!r} takes {total} columns but gets {len(features)}: {shown}. "
            "Name them in order with `features`, or leave some out with `drop`"
        )
    feeds, start = [], 0
    for graph_input, width in zip(left, widths, strict=True):
        end = start + (width or 0)
        feeds.append(Feed(graph_input, tuple(features[start:end])))
        start = end
    return feeds


def _convert(values: NDArray[Any], column: str, graph_input: GraphInput, dtype: Any) -> NDArray[Any]:
    """Cast a column to what the input takes; refuse what would change its meaning."""
    if dtype is np.object_:
        return _as_text(values, column, graph_input)
    if values.dtype.kind == "O":
        values = _objects_as_numbers(values, column, graph_input)
    if np.issubdtype(dtype, np.integer) and values.dtype.kind == "f":
        odd = ~np.isfinite(values) | (values != np.floor(values))
        if odd.any():
            raise DataError(
                f"the model's input {graph_input.name!r} takes whole numbers, but column {column!r} holds "
                f"{int(odd.sum())} missing or fractional values in a batch of {len(values)} rows; fill or round them"
            )
    if np.issubdtype(dtype, np.floating) and values.dtype.kind in "if":
        _check_range(values, column, graph_input.name, dtype)
    return values.astype(dtype, copy=False)


def _check_range(values: NDArray[Any], column: str, name: str, dtype: Any) -> None:
    """Refuse numbers that the input's type cannot hold."""
    most = float(np.finfo(dtype).max)
    with np.errstate(invalid="ignore"):
        beyond = np.isfinite(values) & (np.abs(values) > most)
    if beyond.any():
        raise DataError(
            f"the model's input {name!r} is {np.dtype(dtype).name}, whose largest number is {most:,.6g}, and column "
            f"{column!r} goes beyond it in {int(beyond.sum()):,} of {len(values):,} rows of a batch (up to "
            f"{float(np.abs(values[beyond]).max()):,.6g}): the model would see infinity. Export it with float32 "
            "inputs, or scale the column as the model was trained"
        )


def _as_text(values: NDArray[Any], column: str, graph_input: GraphInput) -> NDArray[Any]:
    if values.dtype.kind == "f":
        raise DataError(
            f"the model's input {graph_input.name!r} takes text, but column {column!r} holds fractional numbers; "
            "store the column as text, spelled as the model was trained"
        )
    if values.dtype.kind != "O":
        return values.astype(str).astype(object)
    missing = absent(values)
    return np.where(missing, "", values) if missing.any() else values


def _objects_as_numbers(values: NDArray[Any], column: str, graph_input: GraphInput) -> NDArray[Any]:
    """Booleans with gaps and digits become numbers; other text is an error."""
    numbers = as_numbers(values)
    if numbers is not None:
        return numbers
    example = next(value for value in values if value is not None and as_numbers(np.array([value], object)) is None)
    raise DataError(
        f"the model's input {graph_input.name!r} takes numbers, but column {column!r} holds text ({example!r}); "
        "encode it as the model was trained, or leave it out with `drop`"
    )


def absent(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which cells of a text column are missing, shape [n]."""
    return np.asarray(values == np.array(None, dtype=object), dtype=np.bool_)


# A matrix of columns whose order nobody stated: what was guessed, and whether the scores look like another order.


FEWEST = 200
"""With fewer rows of either label nothing is compared."""


def guessed_order(
    feeds: Sequence[Feed], cells: Columns, predictions: Predictions, favorable: NDArray[np.bool_] | None
) -> list[str]:
    """Return the warnings about inputs that got the table's columns in the table's order."""
    warnings = []
    for feed in feeds:
        shown = ", ".join(feed.columns)
        warnings.append(
            f"The input {feed.input.name!r} is a matrix without names: it gets these {len(feed.columns)} columns in "
            f"this order: {shown}. In another order every number is wrong; `features` states the order of the training"
            f"{_worse_than_one(feed, cells, predictions, favorable)}."
        )
    return warnings


def _worse_than_one(feed: Feed, cells: Columns, predictions: Predictions, favorable: NDArray[np.bool_] | None) -> str:
    """Say that a single column ranks the rows surely better than the model; empty where none does."""
    score = predictions.score if predictions.score is not None else predictions.decision
    if favorable is None or score is None or min(favorable.sum(), (~favorable).sum()) < FEWEST:
        return ""
    ones, zeros = int(favorable.sum()), int((~favorable).sum())
    auc = roc_area(score, favorable)
    areas = {}
    for name in feed.columns:
        values = cells[name]
        if values.dtype.kind in "iufb":
            numbers = np.nan_to_num(values.astype(np.float64))
            area = roc_area(numbers, favorable)
            areas[name] = max(area, 1 - area)
    best = max(areas, key=lambda name: areas[name], default=None)
    error = np.sqrt((ones + zeros + 1) / (12 * ones * zeros))
    if best is None or areas[best] <= auc + 2 * error:
        return ""
    return (
        f". It looks like another order: the model's ROC-AUC on the first rows is {auc:.3f}, and the column {best!r} "
        f"alone has {areas[best]:.3f}"
    )
