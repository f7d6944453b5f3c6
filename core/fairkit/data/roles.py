"""What the columns of a table are for: label, sensitive groups, features, weights."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.support.names import column_named, listed_names
from fairkit.support.records import record_of

if TYPE_CHECKING:
    from fairkit.data.labelled import Drawn
    from fairkit.data.predictions import PredictionRoles

MISSING_GROUP = "(missing)"
"""The group of the rows whose sensitive value is missing, where such rows are kept."""

SMALL_GROUPS = "(small groups)"
"""The group of all people whose own groups are too small to be counted alone, where `Roles.counts_from` asks so."""

Missing = Literal["drop", "group"]

LARGEST, HIGHEST = "@largest", "@highest"
"""In place of a reference group: the one with the most rows, the one with the highest rate of favorable decisions."""


NULL_SPELLINGS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "#N/A")
"""What a CSV cell may hold to be read as missing, and text of a group, label or stratum in any table."""


def value_text(value: Any) -> str:
    """Write a cell as groups and classes are named: 1 and 1.0 are both ``"1"``."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING_GROUP
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


_NUMBER = re.compile(r"\s*[+-]?(?!0[0-9])([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")


def number_of(value: Any) -> Any:
    """Return a cell as a number, exactly; None where it is none, as ``"01"`` is a code."""
    if not isinstance(value, str):
        return value if hasattr(value, "__float__") else None
    found = _NUMBER.fullmatch(value)
    return None if found is None else float(value) if found[2] or found[3] or "." in value else int(value)


def same_value(a: Any, b: Any) -> bool:
    """Tell whether two cells mean the same, across text and number: ``"1"``, 1, 1.0 and True; ``"01"`` is another."""
    if isinstance(a, bool) or isinstance(b, bool):
        spelled = {"true": "1", "false": "0"}
        return _flag(a, spelled) == _flag(b, spelled)
    numbers = number_of(a), number_of(b)
    return bool(numbers[0] == numbers[1]) if None not in numbers else value_text(a) == value_text(b)


def value_among(values: Iterable[Any], wanted: Any) -> Any:
    """Return the value that is spelled as the wanted one, else the first that means the same; None: neither."""
    same = [value for value in values if same_value(value, wanted)]
    return next((value for value in same if value_text(value) == value_text(wanted)), same[0] if same else None)


def value_meant(wish: Any, values: Sequence[Any], what: str) -> Any:
    """Return the value among some that the user means; `what` has them, for the message."""
    text = wish.strip() if isinstance(wish, str) else wish
    found = value_among(values, text)
    if found is not None:
        return found
    shown = ", ".join(value_text(value) for value in list(values)[:8])
    raise ParameterError(f"{what} never has the value {text!r}; it has: {shown}")


def _flag(value: Any, spelled: dict[str, str]) -> str:
    text = value_text(value).lower()
    return spelled.get(text, text)


@dataclass(frozen=True, slots=True)
class Sensitive:
    """One way to split people into groups: a column, a binned column, or an intersection."""

    columns: tuple[str, ...]  # the columns whose combination is the group; one for a plain column
    edges: tuple[tuple[float, ...] | None, ...]

    @property
    def name(self) -> str:
        """The name in reports and policies: the columns joined by ``+``."""
        return "+".join(self.columns)

    @property
    def text(self) -> str:
        """The form that `parse` reads: ``age:25:60+sex``."""
        parts = []
        for column, edges in zip(self.columns, self.edges, strict=True):
            parts.append(":".join([column, *(value_text(edge) for edge in edges or ())]))
        return "+".join(parts)

    @classmethod
    def parse(cls, text: str, columns: Iterable[str], role: str = "sensitive") -> Self:
        """Read ``sex``, ``age:25:60`` or ``sex+race``."""
        column_names = list(columns)
        text = column_named(text, column_names)
        if text in column_names:
            return cls((text,), (None,))
        names: list[str] = []
        edges: list[tuple[float, ...] | None] = []
        for part in text.split("+"):
            name, *bounds = [part] if part in column_names else part.split(":")
            name = column_named(name, column_names)
            if name not in column_names:
                hint = did_you_mean(name, column_names, what="columns")
                raise DataError(f"there is no {role} column {name!r} in the data. {hint}")
            names.append(name)
            edges.append(_parse_edges(part, bounds) if bounds else None)
        return cls(tuple(names), tuple(edges))

    def with_edges(self, column: str, edges: tuple[float, ...]) -> Self:
        """Return the same split with a column binned at the edges."""
        binned = tuple(edges if c == column else e for c, e in zip(self.columns, self.edges, strict=True))
        return replace(self, edges=binned)


def _parse_edges(part: str, bounds: Sequence[str]) -> tuple[float, ...]:
    try:
        edges = tuple(float(bound) for bound in bounds)
    except ValueError:
        raise DataError(
            f"the bins of {part!r} are not numbers; write them as column:edge:edge, as in age:25:60"
        ) from None
    if any(not math.isfinite(edge) for edge in edges) or any(b <= a for a, b in itertools.pairwise(edges)):
        raise DataError(f"the bin edges of {part!r} must be finite and increase, as in age:25:60")
    return edges


def bin_names(edges: Sequence[float]) -> list[str]:
    """Name the len(edges) + 1 bins: ``< 25``, ``25 to < 60``, ``>= 60``."""
    shown = [value_text(edge) for edge in edges]
    inner = [f"{low} to < {high}" for low, high in itertools.pairwise(shown)]
    return [f"< {shown[0]}", *inner, f">= {shown[-1]}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """How columns of another table came to the rows."""

    on: tuple[str, ...]  # the columns of the key; `person_id=id` where the other table calls it `id`
    sha256: str  # the digest of the other table's content

    def to_dict(self) -> dict[str, Any]:
        """Return the form of a certificate's settings."""
        return {"on": list(self.on), "sha256": self.sha256}


_INDEX = re.compile(r"__index_level_\d+__|Unnamed: 0|")
"""What pandas calls an index that it wrote beside the columns: it numbers rows, and is a feature only if named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Who is what in a table."""

    label: str | None = None  # the outcome column; None where only scores are looked at
    favorable: Any = None
    sensitive: tuple[Sensitive, ...] = ()  # the ways to split people into groups
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()  # columns that are no features
    weights: str | None = None  # the column of sample weights, nonnegative
    missing: Missing = "drop"
    predictions: PredictionRoles | None = None  # columns that hold somebody's predictions; they are no features
    join: Joined | None = None
    joined: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    within: tuple[Sensitive, ...] = ()
    cluster: str | None = None  # the column of ids: rows with one id depend on each other
    sensitive_probability: tuple[str, ...] = ()
    known: tuple[str, ...] = ()  # columns named as groups of which probabilities are given: groups that are known
    query: str | None = None
    counts_from: int = 0
    labelled: Drawn | None = None  # how the rows with a known outcome were chosen, where not all have one

    @property
    def columns(self) -> list[str]:
        """The columns that have a role, but for those of predictions and features, each once."""
        named = [self.label, self.weights, *(c for split in self.sensitive for c in split.columns)]
        named += [self.cluster, self.query, *(c for split in self.within for c in split.columns)]
        named += [c for text in self.sensitive_probability for c in proxy_of(text)[1]]
        named += self.known
        named += () if self.labelled is None else self.labelled.columns
        return list(dict.fromkeys(column for column in named if column is not None))

    def audited(self, noted: Sequence[str] = ()) -> list[str]:
        """Return the columns that an audit of recorded predictions reads, those whose values are noted with them."""
        predicted = () if self.predictions is None else self.predictions.columns
        return list(dict.fromkeys([*self.columns, *predicted, *noted]))

    def feature_names(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns that a model gets, in order."""
        if self.features is not None:
            return self.features
        predicted = () if self.predictions is None else self.predictions.columns
        probabilities = (column for text in self.sensitive_probability for column in proxy_of(text)[1])
        out = {self.label, self.weights, self.cluster, self.query, *self.drop, *self.joined}
        out |= {*predicted, *probabilities}
        if self.labelled is not None and self.labelled.kind == "probability":
            out |= {*self.labelled.columns}
        return tuple(column for column in columns if column not in out and not _INDEX.fullmatch(column))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as they stand in a configuration file and in a model's metadata."""
        unset = ("joined", "known", *(name for name in ("query", "counts_from", "labelled") if not getattr(self, name)))
        texts = {name: [split.text for split in getattr(self, name)] for name in ("sensitive", "within")}
        return record_of(self, without=unset) | texts


def reference_of(text: str, columns: Sequence[str]) -> tuple[str, str]:
    """Split ``sex=male`` into a sensitive column and the group that the others are compared with."""
    found = [name for name in columns if text.startswith(f"{name}=")]
    if found:
        name = max(found, key=len)
        return name, text[len(name) + 1 :]
    name, equals, _ = text.partition("=")
    if not equals:
        raise DataError(f"`reference` {text!r} is not understood; write COLUMN=GROUP, as in sex=male or sex=@largest")
    hint = did_you_mean(name, columns, what="sensitive columns")
    raise DataError(f"`reference` {text!r} names {name!r}, which is no sensitive column. {hint}")


def proxy_of(text: str) -> tuple[str, tuple[str, ...]]:
    """Split ``race=p_white,p_black`` into a name and the columns of group probabilities."""
    name, equals, listed = text.partition("=")
    columns = tuple(listed_names(listed))
    if not equals or not name.strip() or len(columns) < 2 or len(set(columns)) < len(columns):
        raise DataError(
            f"`sensitive_probability` {text!r} is not understood; write NAME=COLUMN,COLUMN with a column of "
            "probabilities for each group, as in race=p_white,p_black,p_asian"
        )
    return name.strip(), columns


def require_columns(names: Iterable[str | None], columns: Sequence[str], *, role: str, table: str) -> None:
    """Check that the table has the columns."""
    for name in names:
        if name is not None and name not in columns:
            hint = did_you_mean(name, columns, what="columns")
            raise DataError(f"{table} has no {role} column {name!r}. {hint}")
