"""Names of columns as people type them: with commas, and with spaces around them."""

from __future__ import annotations

import re
from collections.abc import Iterable


def listed_names(text: str, *, exact: bool = False) -> list[str]:
    """Split ``a,b``: a name with a comma stands in double quotes; others keep spaces around them where `exact`."""
    found = re.findall(r'\s*"([^"]+)"\s*(?=,|$)|([^,]+)', text)
    return [quoted or (name if exact else name.strip()) for quoted, name in found if quoted or name.strip()]


def column_named(name: str, columns: Iterable[str]) -> str:
    """Return the column of a name, or the only one that differs from it in spaces around it; else the name."""
    same = [column for column in columns if column.strip() == name.strip()]
    return same[0] if len(same) == 1 and name not in same else name
