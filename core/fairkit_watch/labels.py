"""Tables of outcomes that come after the decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import require_columns
from fairkit.errors import DataError
from fairkit_watch.counting import ROWS
from fairkit_watch.values import UNKNOWN, binary, text_ids

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.source import Source


def read_labels(source: Source, id_column: str, label: str, favorable: Any) -> pa.Table:
    """Read a table of ids and outcomes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    require_columns([id_column, label], source.columns, role="label", table=source.name)
    ids, outcomes = [], []
    for batch in source.batches([id_column, label], ROWS):
        outcome = binary(batch.column(label), favorable, source.name, "label", label)
        known = outcome != UNKNOWN
        ids.append(text_ids(batch.column(id_column), source.name, id_column).filter(pa.array(known)))
        outcomes.append(outcome[known].astype(np.int8))
    joined = pa.chunked_array(ids, pa.string()).combine_chunks()
    values = np.concatenate(outcomes) if outcomes else np.empty(0, np.int8)
    table = pa.table({"id": joined, "label": pa.array(values)})
    distinct = table.group_by(["id", "label"]).aggregate([])
    if distinct.num_rows > pc.count_distinct(joined).as_py():
        raise DataError(f"{source.name}: an id stands twice in {id_column!r}, with two outcomes; leave one of them out")
    return distinct.select(["id", "label"])
