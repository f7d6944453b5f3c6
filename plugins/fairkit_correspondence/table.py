"""The table of answers: its columns, and the digest of the requests that it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit_correspondence.plan import Plan
    from fairkit_correspondence.requests import Request

REQUEST_COLUMNS = (
    "plan", "document", "text_digest", "context", "name", "draw", "reversed", "look", "order", "place", "request",
)  # fmt: skip
"""What is fixed before anybody is asked, beside the group's column, which is called as the plan calls it."""
ANSWER_COLUMNS = (
    "answer", "unresolved", "outcome", "text", "finish_reason", "prompt_tokens", "completion_tokens", "cost",
    "stated_model", "fingerprint", "address", "model", "parameters", "asked_on",
)  # fmt: skip
"""What comes back; empty in a table of requests."""


def is_ours(columns: Sequence[str]) -> bool:
    """Return whether a table was written by `fairkit ask`."""
    return {"plan", "request", *ANSWER_COLUMNS} <= set(columns)


def requests_digest(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> str | None:
    """Return the content digest of the requests behind a table of answers: the table without its answers.

    It is the digest of the table that `fairkit ask PLAN --dry-run --requests FILE` writes, which a policy lock signs
    before anybody is asked. None for tables that are not of `fairkit ask`.
    """
    import pyarrow as pa

    from fairkit.data.digest import TableDigest

    if not is_ours(columns):
        return None
    digest = TableDigest(columns)
    for batch in batches:
        emptied = [
            pa.nulls(batch.num_rows, pa.string()) if name in ANSWER_COLUMNS else batch.column(name)
            for name in columns
        ]
        digest.update(pa.RecordBatch.from_arrays(emptied, names=list(columns)))
    return digest.hexdigest()


def answers_table(
    plan: Plan,
    requests: Sequence[Request],
    records: Mapping[int, Mapping[str, Any]],
    served: Mapping[str, str],
) -> pa.Table:
    """Return the table of answers: a row for each request, or for each entry of a list; not asked ones included.

    Parameters
    ----------
    plan, requests
        What was planned.
    records
        What came back, by request number; without any it is the table of requests.
    served
        Address, model and parameters; empty for the table of requests.
    """
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in (*REQUEST_COLUMNS, plan.column, *ANSWER_COLUMNS)}
    for request in requests:
        digest, record = request.digest(plan), records.get(request.number)
        for place, entry in enumerate(request.entries):
            row = {
                "plan": plan.digest, "document": request.unit, "text_digest": plan.documents[entry.document].id,
                "context": request.context, plan.column: entry.name.group, "name": entry.name.text,
                "draw": request.draw, "reversed": request.reversed, "look": request.look, "order": request.order,
                "place": place, "request": digest,
            }  # fmt: skip
            row |= _answer(record, place, len(request.entries), served)
            for name, values in columns.items():
                values.append(row[name])
    kinds = {"answer": pa.float64(), "unresolved": pa.float64(), "cost": pa.float64()}
    kinds |= dict.fromkeys(
        ("prompt_tokens", "completion_tokens", "draw", "look", "order", "place"), pa.int64()
    )
    kinds["reversed"] = pa.bool_()
    arrays = [pa.array(values, kinds.get(name, pa.string())) for name, values in columns.items()]
    table = pa.table(arrays, names=list(columns))
    return table.replace_schema_metadata({"fairkit.data": json.dumps({"sensitive": [plan.column]})})


def _answer(
    record: Mapping[str, Any] | None, place: int, size: int, served: Mapping[str, str]
) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(ANSWER_COLUMNS)
    if record is None:
        return found | ({"outcome": "not asked"} if served else {})
    value = record["values"][place]
    found |= {key: record[key] for key in ANSWER_COLUMNS if key in record} | dict(served)
    # what a list's reply leaves out could have stood anywhere
    found["outcome"] = (
        record["outcome"] if value is not None or record["outcome"] != "answered" else "unreadable"
    )
    found |= {"answer": value, "cost": record["cost"] / size}
    if place:
        found |= {"text": None, "prompt_tokens": None, "completion_tokens": None}
    return found
