"""What methods that train under a fair metric share: the columns behind the groups, and the metric's features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import MISSING_GROUP
from fairkit.onnx.write.encode import MISSING_TEXT, Encoder, NumberColumn, TextColumn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.individual.encode import ColumnEncoding


def feature_columns(table: Table) -> dict[str, NDArray[Any]]:
    """Return the raw columns of the features, by name, each of shape (n,)."""
    return {name: table.columns[name] for name in table.features}


def sensitive_columns(table: Table, *, constant: bool = False) -> dict[str, NDArray[Any]]:
    """Return the raw columns behind the sensitive groups, by name, each of shape (n,).

    Groups without columns behind them (a series of sensitive values beside the features) become a text column
    called ``(sensitive) NAME``. A split with one group only has nothing to learn a direction from: it is left out,
    unless `constant` asks for the columns behind it.
    """
    found: dict[str, NDArray[Any]] = {}
    for name, groups in table.groups.items():
        several = len(groups.names) > 1
        if groups.split is not None and (several or constant):
            found |= {column: table.columns[column] for column in groups.split.columns}
        elif groups.split is None and several:
            found[f"(sensitive) {name}"] = np.array(groups.names, dtype=object)[groups.codes]
    return found


def graph_encoder(columns: Iterable[ColumnEncoding]) -> Encoder:
    """Return the encoder of an ONNX graph that computes a fair metric's features, in float32."""
    return Encoder(tuple(_graph_column(column) for column in columns))


def _graph_column(column: ColumnEncoding) -> NumberColumn | TextColumn:
    if column.kind == "number":
        mean = float(np.float32(column.mean))
        scale = float(np.float32(1.0 / column.scale))
        return NumberColumn(column.name, shift=mean, scale=scale, fill=mean, indicator=column.missing)
    shown = tuple(MISSING_TEXT if text == MISSING_GROUP else text for text in column.shown)
    return TextColumn(column.name, shown, "onehot")
