"""CSV for people who open it in a spreadsheet: no cell becomes a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from fairkit.support.escaping import visible

ACTING = ("=", "+", "-", "@")
"""What begins a formula in a spreadsheet; a text that begins so gets an apostrophe."""


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str | float | None]]) -> str:
    """Return a table as CSV, numbers in full; an empty cell is None."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([_safe(name) for name in header])
    writer.writerows([_safe(cell) for cell in row] for row in rows)
    return target.getvalue()


def _safe(cell: str | float | None) -> str | float:
    if not isinstance(cell, str):
        return "" if cell is None else cell
    text = visible(cell)
    return f"'{text}" if text.startswith(ACTING) else text
