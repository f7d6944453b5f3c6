"""Which values of a column of decisions are the favorable ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.data.roles import NO, YES, example_of, same_value, value_among, value_text
from fairkit.errors import ModelError, ParameterError, did_you_mean

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset


def favorable_values(dataset: Dataset, column: str, said: Any = None) -> tuple[Mapping[Any, bool], list[str]]:
    """Tell for every value of a column of decisions whether it is favorable.

    Yes and no (also 1 and 0, true and false) mean what they say; other values are those of the label. Where the two
    contradict each other, as they do when the label's favorable value is 0, nothing is guessed.
    """
    counts = dataset.profile.values[column]
    if counts is None:
        raise ModelError(f"the decision column {column!r} has more than a thousand values; are they scores?")
    if None in counts:
        raise ModelError(f"{counts[None]:,} rows have no decision in the column {column!r}; leave these rows out")
    values = sorted(counts, key=lambda value: (isinstance(value, str), value))
    texts = {value: value_text(value).lower() for value in values}
    label = dataset.roles.favorable
    own = value_among(dataset.profile.label_values, label)
    label = label if own is None else own
    if said is None and dataset.roles.label is None:
        said = label
    if said is not None:
        return _named(values, column, said), []
    flags = set(texts.values()) <= YES | NO
    by_sign = {value: text in YES for value, text in texts.items()}
    label_values = [label, *dataset.profile.label_values]
    of_label = dataset.roles.label is not None and all(any(same_value(v, k) for k in label_values) for v in values)
    by_label = {value: same_value(value, label) for value in values}
    turned = dataset.roles.label is not None and value_text(label).lower() in NO
    if flags and (turned or (of_label and by_sign != by_label)):
        raise _ambiguous(column, values, label)
    if flags:
        yes = [value_text(value) for value in values if by_sign[value]]
        note = f"In the column {column!r}, {yes[0]} is read as the favorable decision." if yes else ""
        return by_sign, [note] if note and not of_label else []
    if of_label:
        return by_label, []
    raise _unknown(column, values, label_values if dataset.roles.label is not None else [])


def _named(values: Sequence[Any], column: str, said: Any) -> Mapping[Any, bool]:
    result = {value: same_value(value, said) for value in values}
    if not any(result.values()):
        hint = did_you_mean(value_text(said), map(value_text, values), what=f"values of {column!r}")
        raise ModelError(f"the decision column {column!r} never has the favorable value {said!r}. {hint}")
    return result


def _ambiguous(column: str, values: Sequence[Any], label: Any) -> ModelError:
    shown = " and ".join(value_text(value) for value in values)
    return ModelError(
        f"the decision column {column!r} holds {shown}, and the label's favorable value is {value_text(label)}: which "
        "decision is the favorable one? Say so beside the column, as in `predictions` "
        f"decision={column},favorable={_example(column, values)}"
    )


def _unknown(column: str, values: Sequence[Any], label_values: Sequence[Any]) -> ModelError:
    if any(isinstance(value, float) and not value.is_integer() for value in values):
        return ModelError(
            f"the decision column {column!r} holds fractions; are they scores? Then name it as the "
            "score (a threshold makes decisions), or as the probability if decisions are drawn"
        )
    odd = next(v for v in values if not any(same_value(v, label_value) for label_value in label_values))
    shown = ", ".join(dict.fromkeys(repr(value_text(label_value)) for label_value in label_values))
    among = f"is not one of the label's values ({shown})" if label_values else "is neither yes nor no"
    return ModelError(
        f"the decision column {column!r} holds {value_text(odd)!r}, which {among}; say which of its own values is the "
        f"favorable one beside the column, as in `predictions` decision={column},favorable={_example(column, values)}"
    )


def _example(column: str, values: Sequence[Any]) -> str:
    """Return an example value that is safe to copy from a message: never one that is bad for people."""
    example = example_of(column, values)
    return example if example != "VALUE" else f"VALUE, where VALUE is {' or '.join(map(value_text, values[:5]))}"


# Columns that a model knows under other names: what is said about them, and what their names suggest.


def check_renamed(rename: Mapping[str, str] | None, inputs: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse new names for columns that are not there, or that the model does not ask for."""
    renames = rename or {}
    for column, name in renames.items():
        if column not in columns:
            hint = did_you_mean(column, columns, what="columns")
            raise ParameterError(f"`rename` {column}={name}: there is no column {column!r} in the data. {hint}")
        if name not in inputs:
            hint = did_you_mean(name, inputs, what="model's inputs")
            raise ParameterError(f"`rename` {column}={name}: the model has no input {name!r}. {hint}")
    names = list(renames.values())
    if len(set(names)) != len(names):
        raise ParameterError(f"`rename` gives two columns the name {max(names, key=names.count)!r}")


def no_column(table: str, names: Sequence[str], columns: Sequence[str], free: Sequence[str]) -> str:
    """Say why the table has no column for some of the model's inputs: one-hot columns, or another name."""
    whole = one_hot(names, columns)
    if whole:
        column, parts = next(iter(whole.items()))
        shown = ", ".join(map(repr, parts[:3])) + (f" ... ({len(parts)} in all)" if len(parts) > 3 else "")
        return (
            f"{table} has no column for the model's inputs {shown}: they look like one-hot columns of {column!r}, so "
            "the model was exported without its encoder. Export the whole pipeline, or add these columns to the table"
        )
    name = names[0]
    hint = did_you_mean(name, free or columns, what="columns that no other input takes")
    return (
        f"{table} has no column for the model's input {name!r}. {hint} If a column has another name in the model, say "
        f"so with `rename` COLUMN={name}"
    )


def one_hot(names: Sequence[str], columns: Sequence[str]) -> dict[str, list[str]]:
    """Return by column the names that are made of its name and a value: ``sex_Male``, ``sex=Male``."""
    indicators: dict[str, list[str]] = {}
    for name in names:
        for column in sorted(columns, key=len, reverse=True):
            rest = name[len(column) :]
            if name.startswith(column) and len(rest) > 1 and rest[0] in "_=.-: [":
                indicators.setdefault(column, []).append(name)
                break
    return indicators


def encoded(total: int, features: Sequence[str], levels: Mapping[str, int]) -> str:
    """Say that a matrix of `total` columns is one-hot encoded, where the numbers of values fit; else nothing."""
    texts = [name for name in features if name in levels]
    plain = len(features) - len(texts)
    fits = {plain + sum(levels[name] - less for name in texts) for less in (0, 1)}
    if not texts or total not in fits:
        return ""
    return (
        f". With the text columns {', '.join(texts[:6])} one-hot encoded there would be {total}: the model was "
        "exported without its encoder. Export the whole pipeline, or add the encoded columns to the table"
    )
