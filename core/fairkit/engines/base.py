"""What may spread an audit over machines, seen from the audit: it sends functions to where the rows are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from fairkit.errors import ParameterError, did_you_mean

if TYPE_CHECKING:
    from fairkit.auditors import AuditContext, Auditor
    from fairkit.data.dataset import Dataset
    from fairkit.data.profile import Bins, Tally
    from fairkit.data.roles import Roles
    from fairkit.data.sources import Source
    from fairkit.plugins.records import Plugin

ENGINES = ("dask",)


class Spread(Protocol):
    """Pieces of one thing that lie on several workers, in the order of the table's rows.

    A piece is made again, elsewhere, when its worker is lost: functions given here must be pure.
    """

    pieces: int

    def derive(self, function: Callable[..., Any], *shared: Any) -> Spread:
        """Apply ``function(piece, *shared)`` to every piece; the results stay on the workers."""
        ...

    def numbered(self, function: Callable[..., Any], each: Sequence[Any], *shared: Any) -> Spread:
        """Apply ``function(piece, each[number], *shared)`` to every piece; the results stay on the workers."""
        ...

    def collect(self) -> list[Any]:
        """Bring all pieces here."""
        ...


class Engine(Protocol):
    """Runs the passes of an audit where the rows are."""

    def check(self, used: Sequence[Plugin], extras: Sequence[str] = ()) -> None:
        """Raise EngineError unless every worker has this fairkit, these plugins and what they and extras need."""
        ...

    def tally(self, source: Source, roles: Roles, bins: Bins) -> Tally:
        """Make the first pass over a table."""
        ...

    def measure(
        self,
        auditors: Sequence[Auditor],
        context: AuditContext,
        columns: Sequence[str],
        used: Sequence[Plugin],
    ) -> list[Any]:
        """Score all rows and return each auditor's total, or for one that is `spread` the `Spread` of its parts."""
        ...

    def distinct(self, dataset: Dataset, column: str, most: int) -> list[Any]:
        """Do what `AuditContext.distinct` says."""
        ...

    def share(self, thing: Any) -> Any:
        """Put something where every worker finds it; return what stands for it in `Spread.derive`."""
        ...


@contextmanager
def opened(engine: Engine | str | None, scheduler: str | None = None) -> Iterator[Engine | None]:
    """Return a running engine for its name, and end afterwards what was started for it.

    Parameters
    ----------
    engine
        None for this machine alone, ``"dask"``, or an engine that runs already.
    scheduler
        The address of a Dask scheduler; None starts a cluster on this machine.

    Raises
    ------
    EngineError
        The scheduler cannot be reached.
    MissingExtraError
        Dask is not installed.
    """
    if engine is None:
        if scheduler is not None:
            raise ParameterError(f"the scheduler {scheduler} is for an engine: add --engine dask")
        yield None
    elif isinstance(engine, str):
        if engine not in ENGINES:
            raise ParameterError(
                f"there is no engine {engine!r}. {did_you_mean(engine, ENGINES, what='engines')}"
            )
        from fairkit.engines.cluster import connected
        from fairkit.engines.dask import DaskEngine

        with connected(scheduler) as client:
            yield DaskEngine(client)
    else:
        yield engine
