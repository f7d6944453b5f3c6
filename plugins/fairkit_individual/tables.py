"""The rows of a certificate, in memory or spread over workers: what the auditors ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit_individual.collect import AuditedRows, join
from fairkit_similarity.search.memory import check_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairkit.engines.base import Engine, Spread
    from fairkit_individual.rewards import Rewards
    from fairkit_similarity.metric import FairMetric
    from fairkit_similarity.search.problem import Problem
    from fairkit_similarity.spread import PartRows
    from fairkit_similarity.transport import Support

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    MakeRewards = Callable[[AuditedRows], Rewards]


class Table(Protocol):
    """All rows of an audit."""

    def __len__(self) -> int: ...

    def take(self, places: Ints) -> AuditedRows:
        """Bring some rows here, by their places among all; these increase."""
        ...

    def part(self, places: Ints) -> MemoryTable:
        """Return the table of some rows, by their places among all; these increase."""
        ...

    def check_memory(self, width: int) -> None:
        """Refuse to begin where the rows, with so many numbers each, do not fit into this machine's memory."""
        ...

    def problem(
        self, metric: FairMetric, rewards: MakeRewards, query_rows: Ints | None, weights: Floats | None
    ) -> tuple[Problem, tuple[str, ...]]:
        """Put rewards on the support, and ask some rows (None: all); give notes too."""
        ...


def table_of(collected: Spread, engine: Engine) -> Table:
    """Return the rows of an audit, from the `Collected` pieces where they lie."""
    return MemoryTable(collected.total().rows()) if engine.here else SpreadTable(collected, engine)


class MemoryTable:
    """Rows in memory."""

    def __init__(self, rows: AuditedRows) -> None:
        self.rows = rows
        self._made: tuple[FairMetric, Support] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, places: Ints) -> MemoryTable:
        """See `Table.part`: the part's distances are those of the whole."""
        table = MemoryTable(self.take(places))
        if self._made is not None:
            metric, support = self._made
            table._made = metric, support.part(places)
        return table

    def _support(self, metric: FairMetric) -> Support:
        """Return where the rows are under a metric; that of the last one is kept."""
        from fairkit_similarity.transport import Support

        if self._made is None or self._made[0] is not metric:
            self._made = metric, Support(metric.transform(self.rows.columns))
        return self._made[1]

    def take(self, places: Ints) -> AuditedRows:
        """See `Table.take`."""
        return self.rows if len(places) == len(self.rows) else self.rows.take(places)

    def check_memory(self, width: int) -> None:
        """See `Table.check_memory`."""
        check_memory(len(self.rows), width)

    def problem(
        self, metric: FairMetric, rewards: MakeRewards, query_rows: Ints | None, weights: Floats | None
    ) -> tuple[Problem, tuple[str, ...]]:
        """See `Table.problem`."""
        support, found = self._support(metric), rewards(self.rows)
        told: dict[str, Any] = {"rows": query_rows, "weights": weights}
        if found.label is not None:
            return support.losses(found.values, found.label, **told), found.notes
        return support.outputs(found.values, found.target, kind=found.kind, **told), found.notes


class SpreadTable:
    """Rows that stay on the workers of an engine."""

    def __init__(self, collected: Spread, engine: Engine) -> None:
        self.engine = engine
        self._rows = collected.derive(_rows)
        self._starts = np.cumsum([0, *self._rows.derive(_length).collect()])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, places: Ints) -> AuditedRows:
        """See `Table.take`."""
        bounds = np.searchsorted(places, self._starts)
        each = [
            places[low:high] - start
            for low, high, start in zip(bounds[:-1], bounds[1:], self._starts[:-1], strict=True)
        ]
        return join(self._rows.numbered(_take, each).collect())

    def part(self, places: Ints) -> MemoryTable:
        """See `Table.part`."""
        return MemoryTable(self.take(places))

    def check_memory(self, width: int) -> None:
        """See `Table.check_memory`: every worker holds its part only."""

    def problem(
        self, metric: FairMetric, rewards: MakeRewards, query_rows: Ints | None, weights: Floats | None
    ) -> tuple[Problem, tuple[str, ...]]:
        """See `Table.problem`."""
        from fairkit_similarity.spread import SpreadTransport
        from fairkit_similarity.transport import KINDS, finite

        chosen = np.arange(len(self)) if query_rows is None else query_rows
        queries = self.take(chosen)
        reward = rewards(queries)
        shared = self.engine.share((metric, rewards))
        parts = self._rows.numbered(_part, self._starts[:-1].tolist(), shared)
        if reward.label is not None:
            values = finite(reward.values, "loss").T
            own_losses, target = values[np.arange(len(values)), reward.label], np.zeros((len(values), 0))
        else:
            values = finite(reward.values, "output")
            target = finite(values if reward.target is None else reward.target, "target")
            gap = np.abs(values - target)
            own_losses = (gap**2 if reward.kind == "squared" else gap).mean(axis=1)
        problem = SpreadTransport(
            self.engine,
            parts,
            kind=KINDS[reward.kind],
            z=metric.transform(queries.columns),
            asked=chosen,
            values=values,
            label=np.zeros(len(values), np.int64) if reward.label is None else reward.label,
            target=target,
            own=own_losses,
            weights=weights,
        )
        return problem, reward.notes


def _rows(collected: Any) -> AuditedRows:
    rows: AuditedRows = collected.rows()
    return rows


def _length(rows: AuditedRows) -> int:
    return len(rows)


def _take(rows: AuditedRows, places: Ints) -> AuditedRows:
    return rows.take(places)


def _part(rows: AuditedRows, start: int, shared: Sequence[Any]) -> PartRows:
    """Make the support of one piece."""
    from fairkit_similarity.spread import PartRows
    from fairkit_similarity.transport import KINDS, finite

    metric, rewards = shared
    found = rewards(rows)
    return PartRows.of(metric.transform(rows.columns), finite(found.values, "reward"), KINDS[found.kind], start)
