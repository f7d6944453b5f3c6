"""Where a command works, and what the processes of models may take there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from fairkit.errors import ParameterError
from fairkit_cli.options.data import first_known, listed, split_names
from fairkit_cli.options.declare import ENGINE, Rare, option

if TYPE_CHECKING:
    from fairkit_cli.config import Config
    from fairkit_onnx.sandbox.limits import Limits

EngineName = Annotated[
    str | None,
    option(
        "--engine",
        "NAME",
        "Where the work runs: dask spreads it over processes or machines; sql has the database of --data count, for "
        "audits of --predictions. Default: this process.",
        ENGINE,
    ),
]
NoPull = Annotated[
    bool | None, Rare("engine.no_pull", "With --engine sql: refuse what the database cannot count; no row is read.")
]
SchedulerAddress = Annotated[
    str | None,
    Rare("engine.scheduler", "The address of a Dask scheduler, as tcp://host:8786. Default: a cluster here."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Where the work is done; None: in this process."""

    KEYS: ClassVar[Mapping[str, str]] = {"engine": "engine.name"}

    engine: EngineName = None
    scheduler: SchedulerAddress = None
    no_pull: NoPull = None

    def arguments(self) -> dict[str, Any]:
        """Return keyword arguments for `fairkit.audit`."""
        if self.no_pull:
            if self.engine != "sql":
                raise ParameterError("engine.no_pull is about --engine sql; add it, or leave engine.no_pull out")
            from fairkit_sql.engine import SqlEngine

            return {"engine": SqlEngine(pulls=False), "scheduler": self.scheduler}
        return {"engine": self.engine, "scheduler": self.scheduler}


Memory = Annotated[
    str | None,
    Rare("sandbox.memory", "The most memory that a model may take, as 2GB. Default: what is free, less a tenth."),
]
Timeout = Annotated[
    float | None, Rare("sandbox.timeout", "Seconds that a model may take to load, or for one batch. Default: 300.")
]
AllowedDomains = Annotated[
    list[str] | None,
    Rare("sandbox.allow_domain", "Also run operators of this domain, as com.microsoft. Default: ai.onnx, ai.onnx.ml."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOptions:
    """What the process of a model may take; None: the default."""

    memory: Memory = None
    timeout: Timeout = None
    allow_domain: AllowedDomains = None

    def limits(self, config: Config) -> Limits:
        """Return the limits: options win over the configuration file."""
        from fairkit_onnx.sandbox.limits import TIMEOUT, Limits, read_bytes

        configured = config.sandbox
        memory = self.memory or configured.get("memory")
        timeout = first_known(self.timeout, configured.get("timeout"), TIMEOUT)
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise ParameterError(f"[sandbox] timeout={timeout!r} is no number of seconds")
        return Limits(
            memory=None if memory is None else read_bytes(str(memory)),
            timeout=float(timeout),
            domains=tuple(split_names(self.allow_domain) or listed(configured.get("allow_domain"))),
        )
