"""Operators of ``ai.onnx.ml``: trees, linear models, encoders. They take rows on the first of two axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from fairkit_onnx.rows.types import Count, Dim, Kind, MixedRowsError, Tensor, rows, times

if TYPE_CHECKING:
    from fairkit_onnx.rows.call import Call

_LABELS = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")


def table(call: Call) -> Tensor:
    """Return the input of a model: onnxruntime takes a vector for a single row."""
    data = call.needed(0)
    if data.axis != 0 or data.rank != 2 or times(data) != 1:
        raise MixedRowsError
    return data


def _width(call: Call) -> Dim:
    """Return the number of a classifier's scores, where it is beyond doubt."""
    labels = call.length(*_LABELS)
    if call.operator == "SVMClassifier" or labels < 2:
        return None
    if call.operator == "LinearClassifier" and call.length("intercepts") not in (1, labels):
        return None
    return labels


def classifier(call: Call) -> list[Tensor]:
    """Labels and scores of a classifier."""
    data = table(call)
    return [rows(data.dims[:1], 0), rows((data.dims[0], _width(call)), 0)]


def regressor(call: Call) -> list[Tensor]:
    """Numbers of a regressor."""
    data = table(call)
    if call.operator in ("SVMRegressor", "LinearRegressor"):
        return [rows((data.dims[0], call.whole("targets", 1)), 0)]
    return [rows((data.dims[0], call.whole("n_targets", 0) or None), 0)]


def each_cell(call: Call) -> list[Tensor]:
    """Operators that treat each cell by itself."""
    return [replace(call.needed(0), values=None)]


def each_table(call: Call) -> list[Tensor]:
    """Scaler and Imputer: numbers by column, or one for all; Normalizer: over each row's numbers."""
    return [replace(table(call), values=None)]


def one_hot(call: Call) -> list[Tensor]:
    """OneHotEncoder: one more axis."""
    data = call.needed(0)
    many = call.length("cats_int64s", "cats_strings") or None
    return [rows((*data.dims, many), data.axis)]


def joined(call: Call) -> list[Tensor]:
    """FeatureVectorizer: columns beside each other."""
    parts = [call.needed(place) for place in range(len(call.inputs))]
    if any(part.axis != 0 or part.rank != 2 or times(part) != 1 for part in parts):
        raise MixedRowsError
    wide = [part.dims[1] for part in parts]
    total = None if None in wide else sum(one for one in wide if isinstance(one, int))
    if total is not None and list(call.wholes("inputdimensions") or wide) != wide:
        raise MixedRowsError
    return [rows((parts[0].dims[0], total), 0)]


def extractor(call: Call) -> list[Tensor]:
    """ArrayFeatureExtractor: constant columns of rows, or entries of a constant by rows' numbers."""
    data, places = call.needed(0), call.needed(1)
    wide = prod([one for one in places.dims if isinstance(one, int)])
    unknown = None in places.dims
    if data.has_rows:
        last = data.rank - 1
        if places.kind is not Kind.CONSTANT or data.rank == 1 or data.axis == last:
            raise MixedRowsError
        return [rows((*data.dims[:-1], None if unknown else wide), data.axis)]
    if places.axis is None or any(one != 1 for one in places.dims[: places.axis]) or unknown:
        raise MixedRowsError
    before: tuple[Dim, ...] = (1,) if data.rank == 1 else data.dims[:-1]
    return [rows((*before, Count(times(places) * wide)), len(before))]


def maps(call: Call) -> list[Tensor]:
    """ZipMap: a sequence of maps, one for each row."""
    return [rows(table(call).dims[:1], 0)]


RULES: dict[str, Callable[[Call], list[Tensor]]] = {
    **dict.fromkeys(("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"), classifier),
    **dict.fromkeys(("LinearRegressor", "SVMRegressor", "TreeEnsembleRegressor", "TreeEnsemble"), regressor),
    **dict.fromkeys(("Binarizer", "CategoryMapper", "LabelEncoder"), each_cell),
    **dict.fromkeys(("Imputer", "Normalizer", "Scaler"), each_table),
    "ArrayFeatureExtractor": extractor,
    "FeatureVectorizer": joined,
    "OneHotEncoder": one_hot,
    "ZipMap": maps,
}
"""Rules by operator."""
