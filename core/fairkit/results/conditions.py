"""Conditions as data, and in plain words: what describes a group of people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_AGES = {"age", "agep"}


def in_words(conditions: Sequence[Mapping[str, Any]], within: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return conditions in words: ``aged 32 to 66, COW = 5, WKHP 40 or more``."""
    told = ", ".join(_words(one) for one in conditions)
    return f"{told} (within {', '.join(_words(one) for one in within)})" if within else told


def texts_of(conditions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return conditions as options take them: ``COLUMN=VALUE``, ``COLUMN=LOW:HIGH``; missing: ``COLUMN=``."""

    def end(value: Any) -> str:
        return "" if value is None else str(value)

    return [
        f"{one['column']}={end(one['value'])}"
        if "value" in one
        else f"{one['column']}={end(one.get('low'))}:{end(one.get('high'))}"
        for one in conditions
    ]


def _words(condition: Mapping[str, Any]) -> str:
    column = str(condition["column"])
    if "value" in condition:
        value = condition["value"]
        if value is None:
            return f"{column} is missing"
        return f"aged {_text(value)}" if column.lower() in _AGES and _is_number(value) else f"{column} = {_text(value)}"
    name = "aged" if column.lower() in _AGES else column
    low, high = condition.get("low"), condition.get("high")
    if low is None and high is None:
        return f"{column} is known"
    if low is None:
        return f"{name} {_text(high)} or less"
    if high is None:
        return f"{name} {_text(low)} or more"
    return f"{name} {_text(low)} to {_text(high)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def is_conditions(value: Any) -> bool:
    """Whether something has the form of conditions: it may come from somebody else's file."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and all(isinstance(one, Mapping) and isinstance(one.get("column"), str) for one in value)
    )
