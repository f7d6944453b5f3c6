"""How much a foreign model may take: memory, time, and the operators that it may be made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from fairkit.errors import ParameterError

TIMEOUT = 300.0
"""Seconds that one batch may take."""
RESERVE = 0.1
"""The share of the machine's free memory that a model never gets."""
LEAST = 256 << 20
"""Bytes that a model gets where little is free."""
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a model's process may take."""

    memory: int | None = None
    timeout: float = TIMEOUT  # seconds that loading the model or scoring one batch may take
    domains: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory < 1 << 20:
            raise ParameterError(f"memory={self.memory} bytes is too little for any model; say 2GB, for example")
        if not 0 < self.timeout < float("inf"):
            raise ParameterError(f"timeout={self.timeout} is no number of seconds above 0")

    def bytes(self) -> int:
        """Return the bytes that a model gets on this machine."""
        return free_memory() if self.memory is None else self.memory


_current: ContextVar[Limits | None] = ContextVar("limits", default=None)


def current() -> Limits:
    """Return the limits that hold where nothing else is said."""
    return _current.get() or Limits()


@contextmanager
def using(limits: Limits) -> Iterator[None]:
    """Let models that are loaded inside have these limits."""
    before = _current.set(limits)
    try:
        yield
    finally:
        _current.reset(before)


def use(limits: Limits) -> None:
    """Let models that are loaded from here on have these limits: for a command, which ends with its process."""
    _current.set(limits)


def read_bytes(text: str) -> int:
    """Read a size such as ``2GB``, ``500M`` or ``1.5 GiB``; units are powers of 1,024."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    if match is None:
        raise ParameterError(f"{text!r} is no size of memory; say 2GB or 500MB, for example")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def shown_bytes(count: int) -> str:
    """Return a size for people."""
    return f"{count / (1 << 30):.3g} GB" if count >= 1 << 30 else f"{count / (1 << 20):.3g} MB"


def free_memory() -> int:
    """Return the bytes that this machine, or this container, has free, less a tenth; at least `LEAST`."""
    found = [*_available(), *_container()]
    return max(int(min(found) * (1 - RESERVE)), LEAST) if found else 4 << 30


def _available() -> Sequence[int]:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        return []


def _container() -> Sequence[int]:
    """Return the memory left in the control group, in bytes, where there is one."""
    try:
        root = Path("/sys/fs/cgroup")
        most, used = ((root / name).read_text("ascii").strip() for name in ("memory.max", "memory.current"))
        return [] if most == "max" else [max(int(most) - int(used), 0)]
    except (OSError, ValueError):
        return []
