"""Cohorts: decisions wait for their outcome until the horizon has passed, and are then counted at once.

Outcomes are never counted as they come: where the delay depends on the outcome, as with defaults that are known in
weeks and repayments that are known after years, the first months would show nothing but defaults.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError
from fairkit_watch.pending import Pending, label_files, open_files
from fairkit_watch.records import OPEN
from fairkit_watch.settings import canonical
from fairkit_watch.totals import add_up

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit_watch.records import WatchRecords


class Cohorts:
    """The open cohorts of a watch."""

    def __init__(self, book: WatchRecords) -> None:
        self.book = book
        self.pending = Pending(book.folder / OPEN, book.settings.sensitive)

    def keep(self, pending: Mapping[str, Sequence[pa.Table]], table: str) -> dict[str, list[str]]:
        """Write the rows whose outcome comes later, and return the files by day."""
        import pyarrow as pa
        import pyarrow.compute as pc

        tables = {day: pa.concat_tables(parts).unify_dictionaries() for day, parts in pending.items()}
        ids = pa.chunked_array([part.column("id").combine_chunks() for part in tables.values()]).combine_chunks()
        repeated = len(ids) - pc.count_distinct(ids).as_py()
        if repeated:
            raise DataError(
                f"{table}: {repeated:,} ids stand twice; labels are matched by id, so each decision needs its own"
            )
        again = int(pc.sum(self.known(ids)).as_py() or 0)
        if again:
            raise DataError(f"{table}: {again:,} of {len(ids):,} ids were added before; a decision is added once")
        number = len(self.book.records)
        return {day: [self.pending.write(f"{day}.{number:08d}.parquet", part)] for day, part in tables.items()}

    def keep_labels(self, labels: pa.Table) -> str:
        """Write labels, and return the file."""
        return self.pending.write(f"labels.{len(self.book.records):08d}.parquet", labels)

    def known(self, ids: Any) -> Any:
        """Say which ids wait for an outcome: an Arrow array of booleans."""
        return self.pending.known(self._files(), ids)

    def close(self, today: datetime.date) -> tuple[str, ...]:
        """Count the cohorts that are older than the horizon, seen from the newest decision; return their days."""
        open_ = open_files(self.book.records)
        if not open_:
            return ()
        newest = min(self.book.newest, (today + datetime.timedelta(1)).isoformat())
        horizon = datetime.timedelta(self.book.settings.horizon)
        last = (datetime.date.fromisoformat(newest) - horizon).isoformat()
        due = sorted(day for day in open_ if day <= last)
        if due:
            labels = label_files(self.book.records)
            added = add_up(self.pending.close(day, open_[day], labels) for day in due)
            counts = hashlib.sha256(canonical(added)).hexdigest()
            batch = f"{self.book.writer}/close/{len(self.book.records)}"
            self.book.append({"kind": "close", "batch": batch, "counts": counts, "days": added, "closed": due})
            self.tidy()
        return tuple(due)

    def tidy(self) -> None:
        """Delete the files that no open cohort needs."""
        self.pending.tidy([*self._files(), *label_files(self.book.records)])

    def waiting(self) -> int:
        """Return how many decisions wait for their outcome."""
        import pyarrow.parquet as pq

        count = 0
        for name in self._files():
            with contextlib.suppress(OSError):
                count += pq.read_metadata(self.pending.folder / name).num_rows
        return count

    def _files(self) -> list[str]:
        return [file for names in open_files(self.book.records).values() for file in names]
