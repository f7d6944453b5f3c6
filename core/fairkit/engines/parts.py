"""What stands for a part of a table on its way to a worker, and what runs there first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.data.parts import TablePart
from fairkit.data.profile import BATCH_ROWS
from fairkit.data.source import Source
from fairkit.engines.base import add
from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.parts import Part


@dataclass(frozen=True, slots=True)
class PartPosition:
    """Where a part stands in its table."""

    name: str  # what messages call the part
    types: dict[str, pa.DataType]  # the table's columns and types
    start: int = 0  # the number of the part's first row
    wrap: Callable[[Part], Part] | None = None  # makes a part of one whose rows were made on the worker

    def open(self, part: Any) -> Source:
        """Return the part, or a data frame in its place, as a table."""
        if not hasattr(part, "read"):
            part = frame_part(part, self.name)
            part = part if self.wrap is None else self.wrap(part)
        return Source(self.name, self.types, (part,))


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rows a part has, or which conversion of a CSV column failed in it."""

    rows: int = 0
    failed: str | None = None


def frame_part(frame: Any, name: str) -> Part:
    """Return a pandas data frame as a part."""
    import pyarrow as pa

    return TablePart(name, pa.Table.from_pandas(frame, preserve_index=False))


def call(function: Callable[..., Any], part: Any, place: PartPosition, *shared: Any) -> Any:
    """Call a function of a source and its first row on a part."""
    return function(place.open(part), place.start, *shared)


def count(source: Source, start: int) -> Counted:
    """Read a part for its number of rows, with the table's types."""
    try:
        return Counted(sum(batch.num_rows for batch in source.batches(source.columns, BATCH_ROWS)))
    except DataError as error:
        return Counted(failed=f"{error}\n{error.__cause__}")


def identity(thing: Any) -> Any:
    """Return it: a task that holds its value, made again where a worker is lost."""
    return thing


def merged(*parts: Any) -> Any:
    """Add the totals of neighbouring parts, in order."""
    total = None
    for part in parts:
        total = add(total, part)
    return total


def pick(found: Sequence[Any], number: int) -> Any:
    """Return one of several results."""
    return found[number]
