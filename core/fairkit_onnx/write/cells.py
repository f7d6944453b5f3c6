"""Cells of raw columns as an exported graph takes them: missing text, codes of text, numbers as float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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
