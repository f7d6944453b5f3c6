"""Adding what several writers counted: the union of their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_watch.log import StateError

if TYPE_CHECKING:
    from fairkit_watch.records import WatchRecords

_OWN = ("pending", "closed", "at", "policy", "clock")


def merge(here: WatchRecords, there: WatchRecords) -> tuple[int, set[str]]:
    """Append the records of another writer that are not here yet; return the decisions and their days."""
    if there.settings.digest != here.settings.digest:
        raise StateError(
            f"{str(there.folder)!r} has other settings than {str(here.folder)!r}; only equal ones are merged"
        )
    known = here.batches()
    fresh = []
    for record in there.records:
        if record["kind"] not in ("add", "close"):
            continue
        held = known.get(record["batch"])
        if held is None:
            fresh.append({key: value for key, value in record.items() if key not in _OWN})
        elif held.get("counts") != record["counts"]:
            raise StateError(
                f"the batch {record['batch']!r} has other counts in {str(there.folder)!r} than here; nothing was merged"
            )
    for record in fresh:
        here.append({**record, "merged": there.writer})
    rows = sum(int(record.get("rows", 0)) for record in fresh)
    return rows, {day for record in fresh for day in record["days"]}
