"""Frozen dataclasses as JSON and back: each field under its name, in the class's order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")


def record_of(value: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """Return a dataclass's fields by name, `without` some; tuples are lists, and parts have their own JSON form."""
    return {one.name: plain(getattr(value, one.name)) for one in fields(value) if one.name not in without}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: by its `to_dict` where it has one."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return record_of(value) if is_dataclass(value) else value


def read_record(cls: type[T], record: Mapping[str, Any], required: Collection[str] = ()) -> T:
    """Return a dataclass of what `record_of` wrote: lists are tuples, names that it does not have are passed over."""
    absent = [name for name in required if name not in record]
    if absent:
        raise TypeError(f"{cls.__name__}: {', '.join(absent)} is not there")
    known = {one.name for one in fields(cls)}  # type: ignore[arg-type]
    return cls(**{key: tuple(v) if isinstance(v, list) else v for key, v in record.items() if key in known})
