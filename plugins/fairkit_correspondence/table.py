"""The table of answers: its columns, and the digest of the requests that it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

REQUEST_COLUMNS = (
    "plan", "document", "context", "group", "name", "draw", "reversed", "look", "order", "list", "place", "request",
)  # fmt: skip
"""What is fixed before anybody is asked; `group` is called as the plan calls it."""
ANSWER_COLUMNS = (
    "answer", "unresolved", "outcome", "text", "finish_reason", "prompt_tokens", "completion_tokens", "cost",
    "stated_model", "fingerprint", "address", "model", "parameters", "tries", "asked_at",
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
