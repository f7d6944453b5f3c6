"""Columns that a model knows under other names: what is said about them, and what their names suggest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairkit.errors import ParameterError, did_you_mean


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
