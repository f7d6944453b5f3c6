"""What methods that train under a fair metric share: the columns behind the groups, and the metric's features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import MISSING_GROUP
from fairkit.errors import ParameterError
from fairkit_onnx.write.encode import MISSING_TEXT, Encoder, NumberColumn, TextColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit_similarity.encode import ColumnEncoding


def feature_columns(table: Table) -> dict[str, NDArray[Any]]:
    """Return the raw columns of the features, by name, each of shape (n,)."""
    return {name: table.columns[name] for name in table.features}


def sensitive_columns(table: Table, *, constant: bool = False) -> dict[str, NDArray[Any]]:
    """Return the raw columns behind the sensitive groups, by name, each of shape (n,).

    Groups without columns behind them (a series of sensitive values beside the features) become a text column
    called ``(sensitive) NAME``. A split with one group only has nothing to learn a direction from: it is left out,
    unless `constant` asks for the columns behind it.
    """
    columns: dict[str, NDArray[Any]] = {}
    for name, groups in table.groups.items():
        several = len(groups.names) > 1
        if groups.split is not None and (several or constant):
            columns |= {column: table.columns[column] for column in groups.split.columns}
        elif groups.split is None and several:
            columns[f"(sensitive) {name}"] = np.array(groups.names, dtype=object)[groups.codes]
    return columns


def named_directions(table: Table, directions: Sequence[str] | None) -> list[str] | None:
    """Return the parameter `directions` by the names of `sensitive_columns`; None: all.

    Sensitive values without a column go by the name of their groups. Columns of one group only are left out, as there.
    """
    if directions is None:
        return None
    named: dict[str, str | None] = {}
    for name, groups in table.groups.items():
        several = len(groups.names) > 1
        columns = {name: f"(sensitive) {name}"}
        if groups.split is not None:
            columns = {column: column for column in groups.split.columns}
        named |= {short: column if several else named.get(short) for short, column in columns.items()}
    found = (named.get(name, name) for name in directions)
    return [name for name in found if name is not None]


def refuse_directions(owner: str, fair_metric: str, directions: Sequence[str] | None) -> None:
    """Refuse `directions` where no subspace is learned.

    Raises
    ------
    ParameterError
        The fair metric is another kind, or a file.
    """
    if directions is not None and fair_metric != "subspace":
        raise ParameterError(f"{owner}: directions belongs to fair_metric=subspace, not to {fair_metric}; leave it out")


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
