"""The table of answers: its columns, and the digest of the requests that it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit_correspondence.parameters import NOT_ASKED

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
_KINDS = {
    **dict.fromkeys(("answer", "unresolved", "cost"), "float64"),
    **dict.fromkeys(("prompt_tokens", "completion_tokens", "draw", "look", "order", "place"), "int64"),
    "reversed": "bool_",
}


def is_ours(columns: Sequence[str]) -> bool:
    """Return whether a table was written by `fairkit ask`."""
    return {"plan", "request", *ANSWER_COLUMNS} <= set(columns)


def requests_digest(table: pa.Table) -> str | None:
    """Return the content digest of the requests behind a table of answers: the table without its answers.

    It is the digest of the table that `fairkit ask PLAN --dry-run --requests FILE` writes, which a policy lock signs
    before anybody is asked. None for tables that are not of `fairkit ask`.
    """
    import pyarrow as pa

    from fairkit.data.digest import TableDigest

    columns = table.column_names
    if not is_ours(columns):
        return None
    digest, empty = TableDigest(columns), pa.nulls(table.num_rows, pa.string())
    kept = [empty if name in ANSWER_COLUMNS else table.column(name) for name in columns]
    for batch in pa.table(kept, names=columns).to_batches():
        digest.update(batch)
    return digest.hexdigest()


def answers_table(
    plan: Plan, requests: Sequence[Request], records: Mapping[int, Mapping[str, Any]], served: Mapping[str, str]
) -> pa.Table:
    """Return the table of answers: a row for each request, or for each entry of a list; not asked ones included."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in (*REQUEST_COLUMNS, plan.column, *ANSWER_COLUMNS)}
    for request in requests:
        digest, record = request.digest(plan), records.get(request.number)
        for place, entry in enumerate(request.entries):
            row = {
                "plan": plan.digest, "document": request.unit, "text_digest": plan.documents[entry.document].id,
                "context": request.context, plan.column: entry.name.group, "name": entry.name.text,
                "draw": request.draw, "reversed": request.reversed, "look": request.look, "order": request.order,
                "place": place, "request": digest, **_answer(record, place, len(request.entries), served),
            }  # fmt: skip
            for name, values in columns.items():
                values.append(row.get(name))
    arrays = [pa.array(values, getattr(pa, _KINDS.get(name, "string"))()) for name, values in columns.items()]
    table = pa.table(arrays, names=list(columns))
    return table.replace_schema_metadata({"fairkit.data": json.dumps({"sensitive": [plan.column]})})


def _answer(record: Mapping[str, Any] | None, place: int, size: int, served: Mapping[str, str]) -> dict[str, Any]:
    if record is None:
        return {"outcome": NOT_ASKED} if served else {}
    value, outcome = record["values"][place], record["outcome"]
    row = {key: record[key] for key in ANSWER_COLUMNS if key in record} | dict(served)
    row |= {"answer": value, "cost": record["cost"] / size}
    if value is None and outcome == "answered":  # what a list's reply leaves out could have stood anywhere
        row["outcome"] = "unreadable"
    return row | (dict.fromkeys(("text", "prompt_tokens", "completion_tokens")) if place else {})
