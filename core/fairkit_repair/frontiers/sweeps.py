"""What a frontier walks along: lists and ranges of parameters, and searches with a budget."""

from __future__ import annotations

import itertools
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from fairkit.errors import ParameterError

MOST_POINTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where a search may look for a parameter: from `low` to `high`, evenly or on a log scale."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def parse(cls, text: str, key: str) -> Self:
        """Read ``lo:hi`` or ``lo:hi:log``.

        Raises
        ------
        ParameterError
            The text has another form.
        """
        parts = text.split(":")
        log = len(parts) == 3 and parts[2] == "log"
        numbers = _numbers(parts[:2])
        if numbers is None or len(numbers) != 2 or len(parts) > 2 + log or not numbers[0] < numbers[1]:
            raise ParameterError(f"`search` {key}={text} is not understood; write {key}=LOW:HIGH or LOW:HIGH:log")
        if log and numbers[0] <= 0:
            raise ParameterError(f"`search` {key}={text}: a log scale needs bounds above 0")
        return cls(low=numbers[0], high=numbers[1], log=log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One method and the settings to try.

    Attributes
    ----------
    plugin
        The method's name.
    fixed
        Parameters that stay.
    vary
        Values by parameter; every combination is a point. Without any there is one point.
    search
        Bounds by parameter, for a search with a budget in place of all combinations.
    """

    plugin: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    search: Mapping[str, Bounds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        twice = (set(self.vary) | set(self.search)) & set(self.fixed) | set(self.vary) & set(self.search)
        if twice:
            raise ParameterError(f"{self.plugin}: {', '.join(sorted(twice))} is both fixed and varied; give it once")
        if math.prod(len(values) for values in self.vary.values()) > MOST_POINTS:
            raise ParameterError(f"{self.plugin}: more than {MOST_POINTS} combinations; vary less, or use `search`")

    def settings(self) -> list[dict[str, Any]]:
        """Return the parameters of every combination."""
        return [
            dict(self.fixed) | dict(zip(self.vary, values, strict=True))
            for values in itertools.product(*self.vary.values())
        ]


def parse_values(text: str, key: str) -> list[Any]:
    """Read ``a,b,c``, ``lo:hi:n`` (n values, evenly) or ``lo:hi:n:log`` (evenly on a log scale)."""
    if ":" not in text:
        values = [part.strip() for part in text.split(",")]
        if not all(values):
            raise ParameterError(f"`vary` {key}={text} has an empty value; write {key}=A,B,C or {key}=LOW:HIGH:N")
        return list(dict.fromkeys(values))
    parts = text.split(":")
    log = len(parts) == 4 and parts[3] == "log"
    numbers = _numbers(parts[:3])
    if numbers is None or len(parts) not in (3, 4) or (len(parts) == 4 and not log):
        raise ParameterError(f"`vary` {key}={text} is no range; write {key}=LOW:HIGH:N or {key}=LOW:HIGH:N:log")
    low, high, count = numbers
    if count < 2 or count != int(count) or not low < high or (log and low <= 0):
        raise ParameterError(f"`vary` {key}={text}: a range has LOW < HIGH (above 0 with log) and N of 2 or more")
    n = int(count)
    if log:
        return [_tidy(low * (high / low) ** (i / (n - 1))) for i in range(n)]
    return [_tidy(low + (high - low) * i / (n - 1)) for i in range(n)]


def _numbers(parts: Sequence[str]) -> list[float] | None:
    try:
        values = [float(part) for part in parts]
    except ValueError:
        return None
    return values if all(math.isfinite(value) for value in values) else None


def _tidy(value: float) -> float:
    """Twelve digits, so that 0.1 + 0.2 is 0.3; whole numbers as such."""
    rounded = float(f"{value:.12g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e9 else rounded


def is_whole(parameters: type, key: str) -> bool:
    """Tell whether a field of a parameters dataclass holds whole numbers only."""
    hint = typing.get_type_hints(parameters).get(key)
    kinds = set(typing.get_args(hint)) or {hint}
    return int in kinds and float not in kinds
