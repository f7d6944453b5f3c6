"""Reaching a cluster, or starting one on this machine, and finding out whether its workers are fit for the work."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from importlib.metadata import version
from typing import Any

from fairkit.errors import EngineError, MissingExtraError

_LEAN = {
    "distributed.worker.profile.enabled": False,
    # the web pages need no key, and show names and figures
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # Dask gives freed memory back at once; taking it again for each batch costs more than the work on it
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 1 << 28,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 1 << 25,
}
"""Settings of a cluster on this machine."""

TIMEOUT = 10.0
"""Seconds to wait for a scheduler, and for its first worker."""


@contextmanager
def connected(scheduler: str | None = None, workers: int | None = None) -> Iterator[Any]:
    """Return a client of the scheduler, or of a new cluster on this machine, which ends with it.

    A cluster on this machine speaks TLS with a key that only its processes have: whoever else reaches its ports can
    neither read rows nor run code. A scheduler that is named is reached as its address says; `tcp` trusts the network.
    """
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("dask", "dask") from error
    if scheduler is not None:
        with _client(distributed, scheduler) as client:
            yield client
        return
    count = workers or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))
    import dask

    with (
        # a copy: Dask appends to the lists of its settings
        dask.config.set(deepcopy(_LEAN)),
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            protocol="tls://",
            security=distributed.Security.temporary(),  # other users of this machine reach the ports too
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextmanager
def _client(distributed: Any, scheduler: str) -> Iterator[Any]:
    try:
        client = distributed.Client(scheduler, timeout=TIMEOUT)
    except TypeError as error:
        raise EngineError(
            f"the scheduler {scheduler} speaks TLS, and Dask has no certificate and key to speak to it with: set "
            "distributed.comm.tls.ca-file and distributed.comm.tls.client in Dask's own configuration"
        ) from error
    except (OSError, ValueError, TimeoutError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {scheduler} ({type(error).__name__}); is it running, and is the address "
            "right? It looks like tcp://10.0.0.1:8786. Without `scheduler` the work is done on this machine"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=TIMEOUT)
        except TimeoutError:
            raise EngineError(
                f"the Dask scheduler at {scheduler} has no workers; start some: dask worker {scheduler}"
            ) from None
        yield client


def check_workers(client: Any, distributions: Mapping[str, str], extras: Iterable[str] = ()) -> None:
    """Compare fairkit and other distributions on every worker with those here, and look for what extras need."""
    wanted = {"fairkit": version("fairkit"), **{_plain(name): told for name, told in distributions.items()}}
    libraries = {extra: _libraries(extra) for extra in sorted(extras)}
    for address, found in client.run(_probe()).items():
        _check_worker(address, found, wanted, libraries)


def _check_worker(
    address: str, versions: Mapping[str, str], wanted: Mapping[str, str], libraries: Mapping[str, Iterable[str]]
) -> None:
    for name, ours in wanted.items():
        if name not in versions:
            raise EngineError(f"the worker {address} has no {name}; fix it there with: pip install '{name}=={ours}'")
        if versions[name] != ours:
            raise EngineError(
                f"the worker {address} has {name} {versions[name]}, but here it is {ours}: both must be the same; "
                f"fix it there with: pip install '{name}=={ours}'"
            )
    for extra, names in libraries.items():
        # xgboost-cpu and xgboost are the same module
        absent = [name for name in names if not versions.keys() & {name, name.removesuffix("-cpu")}]
        if absent:
            raise EngineError(
                f"the worker {address} has no {absent[0]}; fix it there with: pip install 'fairkit[{extra}]'"
            )


def _probe() -> Any:
    """Return a function that travels as code, so that it runs where there is no fairkit too."""

    def installed() -> dict[str, str]:
        from importlib.metadata import distributions

        found: dict[str, str] = {}
        for one in distributions():
            name = (one.metadata["Name"] or "").lower().replace("_", "-")
            found.setdefault(name, one.version)
        return found

    return installed


def _plain(name: str) -> str:
    """Return a distribution's name as `_probe` spells it."""
    return name.lower().replace("_", "-")


def _libraries(extra: str) -> list[str]:
    """The distributions that an extra of fairkit needs, those of extras within it too."""
    from importlib.metadata import requires

    from packaging.requirements import Requirement

    names: list[str] = []
    for text in requires("fairkit") or ():
        requirement = Requirement(text)
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name == "fairkit":
            names += [name for inner in sorted(requirement.extras) for name in _libraries(inner)]
        elif not requirement.marker.evaluate({"extra": ""}):
            names.append(requirement.name.lower().replace("_", "-"))
    return names
