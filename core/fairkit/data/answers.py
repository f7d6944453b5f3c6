"""Tables of answers, which carry how they are to be read."""

from __future__ import annotations

from typing import Any


def carried_by(table: str) -> dict[str, Any]:
    """Return the data settings that a Parquet file of answers carries; empty for other tables."""
    if not table.endswith(".parquet"):
        return {}
    import json

    import pyarrow.parquet as pq

    try:
        record = json.loads((pq.read_schema(table).metadata or {}).get(b"fairkit.data", b"{}"))
    except (OSError, ValueError):  # pyarrow's errors are among them; loading the table says what is wrong
        return {}
    return record if isinstance(record, dict) else {}
