"""What runs on the workers: pure functions of a part of the table and of what is shared by all parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.auditors import measured
from fairkit.data.parts import TablePart
from fairkit.data.profile import BATCH_ROWS, Tally
from fairkit.data.sources import Source
from fairkit.errors import DataError
from fairkit.onnx.model import OnnxModel
from fairkit.plugins.finding import blame

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from fairkit.auditors import AuditContext, Auditor
    from fairkit.data.parts import Part
    from fairkit.data.profile import Bins
    from fairkit.data.roles import Roles
    from fairkit.plugins.records import Found


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part stands in its table.

    Attributes
    ----------
    name
        What messages call the part.
    types
        The table's columns and types.
    start
        The number of the part's first row.
    """

    name: str
    types: dict[str, pa.DataType]
    start: int = 0

    def open(self, part: Any) -> Source:
        """Return the part, or a data frame in its place, as a table."""
        if not hasattr(part, "read"):
            part = frame_part(part, self.name)
        return Source(self.name, self.types, (part,))


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Stands for the whole table where only a part of it is."""

    name: str

    def schema(self) -> pa.Schema:
        """Refuse."""
        raise self._error()

    def rows(self) -> int | None:
        """Unknown."""
        return None

    def read(self, columns: Sequence[str], rows: int, types: Any) -> Iterator[pa.RecordBatch]:
        """Refuse."""
        raise self._error()

    def _error(self) -> DataError:
        return DataError(
            f"{self.name}: an auditor read the whole table while it measured a part of it on a cluster; "
            "what it must know beforehand belongs in its method `begin`"
        )


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rows a part has, or which conversion of a CSV column failed in it."""

    rows: int = 0
    failed: str | None = None


def frame_part(frame: Any, name: str) -> Part:
    """Return a pandas data frame as a part."""
    import pyarrow as pa

    return TablePart(name, pa.Table.from_pandas(frame, preserve_index=False))


def count(part: Any, place: Place) -> Counted:
    """Read a part for its number of rows, with the table's types."""
    source = place.open(part)
    try:
        return Counted(sum(batch.num_rows for batch in source.batches(source.columns, BATCH_ROWS)))
    except DataError as error:
        return Counted(failed=str(error.__cause__ or error))


def tally(part: Any, place: Place, roles: Roles, bins: Bins) -> Tally:
    """Make the first pass over a part."""
    source = place.open(part)
    found = Tally(source.columns, roles, bins, table=place.name, start=place.start)
    for batch in source.batches(source.columns, BATCH_ROWS):
        found.add(batch)
    return found


@dataclass(slots=True)
class Job:
    """What every part is measured with.

    Attributes
    ----------
    auditors, owners
        The auditors after `begin`, and the plugins that they come from.
    context
        The audit's; its dataset knows groups and labels, but holds no rows.
    columns
        The columns to read.
    """

    auditors: list[Auditor]
    owners: list[Found]
    context: AuditContext
    columns: list[str]


def measure(part: Any, place: Place, job: Job) -> list[Any]:
    """Score a part; return each auditor's total, None where the part has no rows."""
    use_threads(job.context.scorer)
    context, totals = job.context, [None] * len(job.auditors)
    dataset = context.dataset.part(place.open(part), place.start)
    for batch in dataset.batches(job.columns, partial=True):
        predictions = context.scorer.predict(batch.columns(context.scorer.columns))
        for number, auditor in enumerate(job.auditors):
            with blame(job.owners[number], f"the auditor {auditor.name!r} measured a batch"):
                found = measured(auditor, batch, predictions, context)
                totals[number] = add(totals[number], found)
    return totals


def distinct(part: Any, place: Place, dataset: Any, column: str, most: int) -> list[Any]:
    """Return a column's distinct values in a part."""
    from fairkit.auditors import distinct as find

    return find(dataset.part(place.open(part), place.start), column, most)


def use_threads(scorer: Any) -> None:
    """Let onnxruntime use the worker's threads, not all of the machine's: other workers use the others."""
    model = getattr(scorer, "model", None)
    if isinstance(model, OnnxModel):
        model.use_threads(worker_threads())


def worker_threads() -> int:
    """How many threads this worker may use."""
    from distributed import get_worker

    return int(get_worker().state.nthreads)


def identity(thing: Any) -> Any:
    """Return it: a task that holds its value, made again where a worker is lost."""
    return thing


def pick(totals: Sequence[Any], number: int) -> Any:
    """Return one auditor's total."""
    return totals[number]


def add(one: Any, other: Any) -> Any:
    """Add totals; None stands for no rows."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


def merged(*parts: Any) -> Any:
    """Add the totals of neighbouring parts, in order."""
    total = None
    for part in parts:
        total = add(total, part)
    return total
