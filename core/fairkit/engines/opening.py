"""From the name of an engine to one that runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairkit.engines.local import LocalEngine
from fairkit.errors import ParameterError, did_you_mean
from fairkit.support.faces import imported

if TYPE_CHECKING:
    from fairkit.engines.base import Engine

ENGINES = ("dask", "sql")
SQL = "fairkit_sql.engine:SqlEngine"
"""What has a database count."""
DASK, CONNECTED = "fairkit_dask.engine:DaskEngine", "fairkit_dask.cluster:connected"
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
