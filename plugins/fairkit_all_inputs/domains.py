"""What every column may be: as the user says, else as the data and the model's encoders have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import same_value, value_text
from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit_all_inputs.collect import MOST_VALUES
from fairkit_onnx.structure.domain import Listed, Numbers

if TYPE_CHECKING:
    from fairkit_all_inputs.collect import People, Seen
    from fairkit_all_inputs.parameters import Parameters
    from fairkit_onnx.structure.encoded import Features

MOST_COMBINATIONS = 64
"""Values, or combinations of values, that what changes may have."""


def domains_of(
    people: People, columns: Sequence[str], changing: Sequence[str], features: Features | None, parameters: Parameters
) -> tuple[list[Numbers | Listed], list[str]]:
    """Return a domain for each block of columns, that of the changing columns last, and sentences about them."""
    for name in parameters.domain:
        if name not in columns:
            raise ParameterError(
                f"all-inputs: the model reads no column {name!r}, so a domain for it means nothing. "
                f"{did_you_mean(name, columns, what='columns')}"
            )
        if name in changing:
            raise ParameterError(f"all-inputs: {name!r} changes: give its `values`, not a `domain`")
    free = [name for name in columns if name not in changing]
    groups = sorted(people.groups) if parameters.one_hot else []
    groups = [group for group in groups if not set(group) & {*parameters.domain}]
    joined = {name for group in groups for name in group}
    listed = {} if features is None else features.listed
    domains: list[Numbers | Listed] = [
        _one(name, people.seen[name], listed, parameters.domain.get(name)) for name in free if name not in joined
    ]
    for group in groups:
        hot = [tuple(int(i == j) for j in range(len(group))) for i in range(len(group))]
        domains.append(Listed(columns=group, values=tuple(hot)))
    domains.append(Listed(columns=tuple(changing), values=_combinations(people, changing, parameters.values)))
    notes = []
    if groups:
        shown = "; ".join(f"{group[0]} ... ({len(group)})" for group in groups)
        notes.append(f"Of these 0-1 columns exactly one is 1, as in all {people.count:,} rows: {shown}.")
    return domains, notes


def _one(name: str, seen: Seen, listed: Mapping[str, list[Any]], stated: Any) -> Numbers | Listed:
    text = seen.text
    if stated is not None and not text and name not in listed:
        return _told_range(name, seen, stated)
    if not text and name not in listed:
        if not np.isfinite(seen.low):
            raise DataError(
                f"all-inputs: column {name!r} holds no number; give it with all-inputs.domain.{name}=LOW:HIGH"
            )
        return Numbers(name=name, low=seen.low, high=seen.high, whole=seen.whole, missing=seen.missing)
    if seen.values is None:
        raise DataError(
            f"all-inputs: column {name!r} has too many values to go through; name some with "
            f"all-inputs.domain.{name}=A,B"
        )
    values = list(seen.values)
    if not text and not listed.get(name) and seen.whole and seen.high - seen.low < MOST_VALUES:
        values = np.arange(
            seen.low, seen.high + 1
        ).tolist()  # an operator breaks the order: every number is gone through
    if not text and seen.missing:
        values.append(np.nan)
    values += [key for key in listed.get(name, ()) if not any(same_value(key, value) for value in values)]
    if stated is not None:
        wished = (
            stated.split(",")
            if isinstance(stated, str)
            else list(stated)
            if isinstance(stated, list | tuple)
            else [stated]
        )
        values = [_known(name, wish, values) for wish in wished]
    if not values:
        raise DataError(f"all-inputs: the domain of {name!r} is empty")
    return Listed(columns=(name,), values=tuple((value,) for value in values))


def _told_range(name: str, seen: Seen, stated: Any) -> Numbers:
    parts = (
        stated.split(":")
        if isinstance(stated, str)
        else stated
        if isinstance(stated, list | tuple)
        else [stated, stated]
    )
    try:
        low, high = (float(part) for part in parts)
    except (TypeError, ValueError):
        raise ParameterError(
            f"all-inputs: the domain {stated!r} of {name!r} is not understood; write all-inputs.domain.{name}=LOW:HIGH"
        ) from None
    whole = seen.whole and low.is_integer() and high.is_integer()
    return Numbers(name=name, low=low, high=high, whole=whole, missing=False)


def _known(name: str, wish: Any, values: Sequence[Any]) -> Any:
    text = wish.strip() if isinstance(wish, str) else wish
    for value in values:
        if same_value(value, text):
            return value
    shown = ", ".join(value_text(value) for value in list(values)[:8])
    raise ParameterError(f"all-inputs: {name!r} never has the value {text!r}; it has: {shown}")


def _combinations(people: People, changing: Sequence[str], told: Sequence[str]) -> tuple[tuple[Any, ...], ...]:
    """Return the values that the changing columns take together."""
    if told:
        return tuple(_told_values(people, changing, text) for text in told)
    if len(changing) == 1:
        values = people.seen[changing[0]].values
        if values is None or len(values) > MOST_COMBINATIONS:
            raise DataError(
                f"all-inputs: column {changing[0]!r} has more than {MOST_COMBINATIONS} values; choose some with the "
                "parameter `all-inputs.values=A,B`"
            )
        return tuple((value,) for value in sorted(values, key=lambda v: (isinstance(v, str), v is None, v)))
    together = people.combinations
    if together is None or len(together) > MOST_COMBINATIONS:
        raise DataError(
            f"all-inputs: {'+'.join(changing)} have more than {MOST_COMBINATIONS} combinations; choose some with the "
            "parameter `all-inputs.values=A+B,C+D`"
        )
    return tuple(sorted(together.values(), key=lambda values: tuple(map(str, values))))


def _told_values(people: People, changing: Sequence[str], text: str) -> tuple[Any, ...]:
    parts = str(text).split("+")
    if len(parts) != len(changing):
        raise ParameterError(
            f"all-inputs: the values {text!r} are {len(parts)}, and {len(changing)} columns change; join one value of "
            f"each with +, in the order {'+'.join(changing)}"
        )
    chosen = []
    for name, part in zip(changing, parts, strict=True):
        seen = people.seen[name]
        if not seen.text and seen.values is None:
            chosen.append(float(part))
        else:
            chosen.append(_known(name, part, list(seen.values or ())))
    return tuple(chosen)
