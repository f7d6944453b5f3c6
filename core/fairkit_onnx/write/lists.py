"""Columns of lists in a graph: one input of shape [rows, k] in place of k inputs of shape [rows, 1]."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.lists import list_columns
from fairkit_onnx.write.graph import RESERVED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit_onnx.write.graph import GraphBuilder


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
    found, place = [], 0
    while place < len(names):
        name, width = starts.get(place, ("", 1))
        found.append((name, range(place, place + width)))
        place += width
    return found


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
