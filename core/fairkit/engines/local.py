"""The engine of this process: one piece, the whole table; the same calls as on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fairkit.data.parts import TablePart
from fairkit.data.profile import BATCH_ROWS
from fairkit.data.source import Source
from fairkit.engines.base import Told, add, each_in_processes, nobody
from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.support.lazy_dataclass import dataclass
from fairkit.support.lazy_package import imported

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.dataset import Dataset
    from fairkit.data.parts import Part
    from fairkit.engines.base import Engine
    from fairkit.settings import ModelOptions


class LocalEngine:
    """Runs functions in this process (see `fairkit.engines.base.Engine`)."""

    here = True

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes

    def check(self, distributions: Mapping[str, str], extras: Iterable[str] = ()) -> None:
        """See `Engine.check`: what is here is here."""

    def placed(self, data: Dataset, reasons: Sequence[str], options: ModelOptions, cut: float | None = None) -> Dataset:
        """See `Engine.placed`: rows are read."""
        return data

    def share(self, thing: Any) -> Any:
        """See `Engine.share`: it is shared as it is."""
        return thing

    def map(self, function: Callable[..., Any], source: Source, *shared: Any, told: Told = nobody) -> Here:
        """See `Engine.map`."""
        read = source if told is nobody else _Watched(source, told)
        return Here((function(read, 0, *shared),))

    def total(self, function: Callable[..., Any], source: Source, *shared: Any, told: Told = nobody) -> Any:
        """See `Engine.total`."""
        return self.map(function, source, *shared, told=told).total()

    def each(
        self, function: Callable[..., Any], items: Sequence[Any], *shared: Any, done: Callable[[Any], None]
    ) -> None:
        """See `Engine.each`: one after the other, or in several processes."""
        if self.processes > 1 and len(items) > 1:
            each_in_processes(function, items, shared, self.processes, done)
            return
        for item in items:
            done(function(item, *shared))


@dataclass(frozen=True, slots=True)
class Here:
    """Pieces in this process (see `fairkit.engines.base.Spread`)."""

    parts: tuple[Any, ...]

    @property
    def pieces(self) -> int:
        """How many there are."""
        return len(self.parts)

    def derive(self, function: Callable[..., Any], *shared: Any) -> Here:
        """See `Spread.derive`."""
        return type(self)(tuple(function(part, *shared) for part in self.parts))

    def numbered(self, function: Callable[..., Any], each: Sequence[Any], *shared: Any) -> Here:
        """See `Spread.numbered`."""
        pairs = zip(self.parts, each, strict=True)
        return Here(tuple(function(part, own, *shared) for part, own in pairs))

    def merged(self) -> Here:
        """See `Spread.merged`."""
        return Here((self.total(),))

    def total(self) -> Any:
        """See `Spread.total`."""
        return merged(*self.parts)

    def collect(self) -> list[Any]:
        """See `Spread.collect`."""
        return list(self.parts)


@dataclass(frozen=True, slots=True)
class Doubled(Here):
    """What distinct rows add up to, by the binary digits of their counts, the highest first."""

    def total(self) -> Any:
        """Double and add: Σ 2^k T_k, with nothing but ``+``; lists are put together once."""
        result = None
        for part in self.parts:
            twice = result if isinstance(result, list) else add(result, result)
            result = add(twice, part)
        return result


class _Watched(Source):
    """A table that says how many of its rows have been worked on."""

    def __init__(self, source: Source, told: Told) -> None:
        super().__init__(source.name, source.types, source.parts, source.counts)
        self._told = told

    def batches(self, columns: Sequence[str], rows: int, *, coded: bool = False) -> Iterator[pa.RecordBatch]:
        """See `Source.batches`."""
        done = 0
        for batch in super().batches(columns, rows, coded=coded):
            yield batch
            done += batch.num_rows
            self._told(done)


# What stands for a part of a table on its way to a worker, and what runs there first.


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


# From the name of an engine to one that runs.


ENGINES = ("dask", "sql")
SQL = "fairkit_sql.counted:SqlEngine"
"""What has a database count."""
DASK, CONNECTED = "fairkit_dask:DaskEngine", "fairkit_dask:connected"
"""What has the workers of a cluster read rows, and what reaches or starts one."""


@contextmanager
def opened(engine: Engine | str | None, scheduler: str | None = None) -> Iterator[Engine]:
    """Return a running engine for its name, and end afterwards what was started for it."""
    if isinstance(engine, str):
        if engine not in ENGINES:
            raise ParameterError(f"there is no engine {engine!r}. {did_you_mean(engine, ENGINES, what='engines')}")
        if engine == "sql":
            if scheduler is not None:
                raise ParameterError(f"the scheduler {scheduler} is for `engine=dask`, not for sql")
            yield imported(SQL)()
            return
        with imported(CONNECTED)(scheduler) as client:
            yield imported(DASK)(client)
        return
    if scheduler is not None and (engine is None or engine.here):
        raise ParameterError(f"the scheduler {scheduler} is for an engine: add `engine=dask`")
    yield engine or LocalEngine()
