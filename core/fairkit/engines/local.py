"""The engine of this process: one piece, the whole table; the same calls as on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.data.source import Source
from fairkit.engines.base import Told, add, nobody
from fairkit.engines.processes import each_in_processes

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.dataset import Dataset
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
        return Here(tuple(function(part, *shared) for part in self.parts))

    def numbered(self, function: Callable[..., Any], each: Sequence[Any], *shared: Any) -> Here:
        """See `Spread.numbered`."""
        pairs = zip(self.parts, each, strict=True)
        return Here(tuple(function(part, own, *shared) for part, own in pairs))

    def merged(self) -> Here:
        """See `Spread.merged`."""
        return Here((self.total(),))

    def total(self) -> Any:
        """See `Spread.total`."""
        found = None
        for part in self.parts:
            found = add(found, part)
        return found

    def collect(self) -> list[Any]:
        """See `Spread.collect`."""
        return list(self.parts)


@dataclass(frozen=True, slots=True)
class Doubled(Here):
    """What distinct rows add up to, by the binary digits of their counts, the highest first."""

    def derive(self, function: Callable[..., Any], *shared: Any) -> Doubled:
        """See `Spread.derive`."""
        return Doubled(tuple(function(part, *shared) for part in self.parts))

    def total(self) -> Any:
        """Double and add: Σ 2^k T_k, with nothing but ``+``; lists are put together once."""
        found = None
        for part in self.parts:
            twice = found if isinstance(found, list) else add(found, found)
            found = add(twice, part)
        return found


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
