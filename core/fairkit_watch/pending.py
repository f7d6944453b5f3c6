"""Decisions whose outcome is not known yet: kept by day until the day's cohort closes, and then deleted.

Files are written before the record that names them, so that a kill leaves at most files that no record names; these are
deleted by the next writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow import as_numpy
from fairkit.data.roles import Sensitive
from fairkit.support.files import FileError, explain, replacing
from fairkit_watch.log import StateError
from fairkit_watch.settings import POOLED
from fairkit_watch.totals import Increments, whole
from fairkit_watch.values import UNKNOWN

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit_watch.log import Record


class Pending:
    """The folder of open cohorts."""

    def __init__(self, folder: Path, splits: Sequence[str]) -> None:
        self.folder = folder
        self.splits = [Sensitive.parse(text, [p.partition(":")[0] for p in text.split("+")]).name for text in splits]

    def write(self, name: str, table: pa.Table) -> str:
        """Write a table under a new name; it is on the disk when this returns."""
        import pyarrow.parquet as pq

        try:
            self.folder.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise FileError(explain(error, "cannot make", self.folder)) from error
        with replacing(self.folder / name, mode=0o600) as file:
            pq.write_table(table, file)
        return name

    def read(self, names: Iterable[str]) -> pa.Table | None:
        """Read files as one table; None where there are none."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables = []
        for name in names:
            try:
                tables.append(pq.read_table(self.folder / name, memory_map=False))
            except (OSError, pa.ArrowInvalid) as error:
                raise StateError(
                    f"the open cohort {str(self.folder / name)!r} cannot be read: {error}; restore it from a backup"
                ) from None
        return pa.concat_tables(tables).unify_dictionaries() if tables else None

    def tidy(self, wanted: Iterable[str]) -> None:
        """Delete the files that no record needs."""
        keep = set(wanted)
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if path.name not in keep:
                    path.unlink(missing_ok=True)

    def known(self, names: Iterable[str], ids: Any) -> Any:
        """Say which of some ids are in files: an Arrow array of booleans."""
        import pyarrow as pa
        import pyarrow.compute as pc

        held = self.read(names)
        if held is None:
            return pa.array(np.zeros(len(ids), bool))
        return pc.is_in(ids, value_set=held.column("id").combine_chunks())

    def close(self, day: str, names: Sequence[str], labels: Sequence[str]) -> Increments:
        """Return a day's counts when its cohort closes: cells, and decisions without a known outcome."""
        import pyarrow.compute as pc

        cohort = self.read(names)
        if cohort is None:
            return {}
        outcome = as_numpy(cohort.column("label").combine_chunks()).astype(np.int64)
        came = self.read(labels)
        if came is not None:  # the newest label of an id counts: look from the end
            newest = came.take(np.arange(came.num_rows)[::-1].copy())
            at = pc.index_in(cohort.column("id").combine_chunks(), value_set=newest.column("id").combine_chunks())
            found = as_numpy(pc.fill_null(at, -1)).astype(np.int64)
            values = as_numpy(newest.column("label").combine_chunks()).astype(np.int64)
            outcome = np.where(found >= 0, values[np.maximum(found, 0)], outcome)
        yes = as_numpy(cohort.column("decision").combine_chunks()).astype(np.int64)
        weights = as_numpy(cohort.column("weight").combine_chunks()) if "weight" in cohort.column_names else None
        added: dict[str, dict[str, dict[str, list[float]]]] = {}
        codes = [(POOLED, [POOLED], np.zeros(len(yes), np.int64))]
        for i, split in enumerate(self.splits):
            column = cohort.column(f"group{i}").combine_chunks()
            places = as_numpy(pc.fill_null(column.indices, -1)).astype(np.int64)
            codes.append((split, column.dictionary.to_pylist(), places))
        for split, groups, group in codes:
            of_split: dict[str, dict[str, list[float]]] = {}
            for g, name in enumerate(groups):
                inside = group == g
                if inside.any():
                    of_split[name] = _cells(outcome[inside], yes[inside], None if weights is None else weights[inside])
            added[split] = of_split
        return whole({day: added})


def _cells(outcome: Any, yes: Any, weights: Any) -> dict[str, list[float]]:
    cells: dict[str, list[float]] = {}
    for suffix, own in ((1, weights), (2, None if weights is None else weights**2)):
        if suffix == 2 and own is None:
            continue
        counts = np.bincount(outcome * 2 + yes, own, 2 * (UNKNOWN + 1)).tolist()
        cells["c" * suffix] = counts[:4]
        if any(counts[4:]):
            cells["u" * suffix] = counts[4:]
    return cells


def open_files(records: Iterable[Record]) -> dict[str, list[str]]:
    """Return the files of cohorts that are still open, by day, oldest record first."""
    files: dict[str, list[str]] = {}
    for record in records:
        for day, names in record.get("pending", {}).items():
            files.setdefault(day, []).extend(names)
        for day in record.get("closed", ()):
            files.pop(day, None)
    return files


def label_files(records: Iterable[Record]) -> list[str]:
    """Return the files of labels that an open cohort may still need, oldest first.

    A label is for a decision that waited when it came: its file is needed until all that waited then are closed.
    """
    open_: dict[str, list[str]] = {}
    came: list[tuple[str, set[str]]] = []
    for record in records:
        for day, names in record.get("pending", {}).items():
            open_.setdefault(day, []).extend(names)
        for day in record.get("closed", ()):
            open_.pop(day, None)
        if record.get("labels"):
            came.append((record["labels"], {name for names in open_.values() for name in names}))
    waiting = {name for names in open_.values() for name in names}
    return [file for file, then in came if then & waiting]
