"""What the columns of a table are for: label, sensitive groups, features, weights."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.support.escaping import listed_names
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from fairkit.data.labelled import Drawn


MISSING_GROUP = "(missing)"
"""The group of the rows whose sensitive value is missing, where such rows are kept."""

SMALL_GROUPS = "(small groups)"
"""The group of all people whose own groups are too small to be counted alone, where `Roles.counts_from` asks so."""

Missing = Literal["drop", "group"]

LARGEST, HIGHEST = "@largest", "@highest"
"""In place of a reference group: the one with the most rows, the one with the highest rate of favorable decisions."""


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
    match = _NUMBER.fullmatch(value)
    return None if match is None else float(value) if match[2] or match[3] or "." in value else int(value)


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
    result = value_among(values, text)
    if result is not None:
        return result
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

    @property
    def needed(self) -> list[str | None]:
        """The columns that complete rows have: the label and, unless rows without a group are one, the groups."""
        splits = () if self.missing == "group" else self.sensitive
        return [self.label, *(column for split in splits for column in split.columns)]

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
    matching = [name for name in columns if text.startswith(f"{name}=")]
    if matching:
        name = max(matching, key=len)
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
            named = " Name it with `label`." if role == "label" else ""
            raise DataError(f"{table} has no {role} column {name!r}. {hint}{named}")


# Names of columns.


def column_named(name: str, columns: Iterable[str]) -> str:
    """Return the column of a name, or the only one that differs from it in spaces around it; else the name."""
    same = [column for column in columns if column.strip() == name.strip()]
    return same[0] if len(same) == 1 and name not in same else name


# Columns of lists, such as embeddings: the list column `emb` of length 3 is read as `emb[0]`, `emb[1]`, `emb[2]`.


_PLACE = re.compile(r"(.*)\[(\d+)\]", re.DOTALL)


def list_columns(columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns of each list by its name, in order: ``{"emb": ["emb[0]", "emb[1]"]}``.

    Only names whose places are 0, 1, ... without gaps count, and no name of a column.
    """
    lists: dict[str, dict[int, str]] = {}
    for column in columns:
        parts = _PLACE.fullmatch(column)
        if parts is not None and column == f"{parts[1]}[{int(parts[2])}]":
            lists.setdefault(parts[1], {})[int(parts[2])] = column
    return {
        name: [places[index] for index in range(len(places))]
        for name, places in lists.items()
        if max(places) == len(places) - 1 and name not in columns
    }


def spread(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the columns of names, those of a list in the place of its name."""
    lists = list_columns(columns)
    return [column for name in (column_named(name, columns) for name in names) for column in lists.get(name, [name])]


def shortened(names: Sequence[str], most: int | None = None) -> str:
    """Join names for a message, at most `most`, the columns of a list as ``emb[0] to emb[767]``."""
    lists = list_columns(names)
    of = {column: name for name, places in lists.items() for column in places if len(places) > 2}
    shown = [f"{of[name]}[0] to {lists[of[name]][-1]}" if name in of else name for name in names]
    distinct = list(dict.fromkeys(shown))
    more = f", ... ({len(names)} in all)" if most is not None and len(distinct) > most else ""
    return ", ".join(distinct[:most]) + more


# What cannot be meant by references, strata, clusters and group probabilities.


def check_conditions(roles: Roles, columns: Sequence[str], table: str) -> None:
    """Refuse references, strata, clusters and group probabilities that cannot be meant."""
    require_columns([roles.cluster], columns, role="cluster", table=table)
    require_columns([roles.query], columns, role="query", table=table)
    _check_query(roles)
    _check_labelled(roles, columns, table)
    named = dict(map(proxy_of, roles.sensitive_probability))
    for shares in named.values():
        require_columns(shares, columns, role="probability", table=table)
    splits = [split.name for split in roles.sensitive]
    within = [split.name for split in roles.within]
    compared = [reference_of(text, splits)[0] for text in roles.reference]
    for role, names in (("within", within), ("reference", compared), ("sensitive", [*splits, *named])):
        twice = [name for name in names if names.count(name) > 1]
        if twice or len(named) < len(roles.sensitive_probability):
            raise DataError(f"`{role}` names {(twice or list(named))[0]!r} twice; name it once")
    for split in roles.within:
        parts = [s for s in roles.sensitive if set(s.columns) <= set(split.columns)]
        if parts:
            raise DataError(
                f"the strata of {split.name!r} have one group of {parts[0].name!r} only, as it is a part of them; "
                "leave it out of `within`"
            )
    if roles.within and not roles.sensitive:
        raise DataError("`within` compares the groups of a sensitive column inside strata; name one with `sensitive`")


def _check_labelled(roles: Roles, columns: Sequence[str], table: str) -> None:
    """Refuse a design of labels where there are none, and beside conditions under which it was not measured."""
    if roles.labelled is None:
        return
    if roles.label is None:
        raise DataError("`labelled` says how rows with an outcome were chosen: name the column of outcomes as `label`")
    if roles.favorable is None:
        raise DataError("`labelled` is for outcomes of two kinds: say which is good for the person with `favorable`")
    refused = ["cluster", "query", "within", "sensitive_probability"]
    refused += ["reference"] if roles.labelled.kind == "selective" else []
    for name in refused:
        if getattr(roles, name):
            raise DataError(
                f"`labelled` and `{name}` cannot be used together: such intervals were not measured; leave one out"
            )
    for column in roles.labelled.columns:
        if column not in columns and column in ("decision", "d"):
            raise DataError(
                f"{table}: `labelled` by={column}: the decision is no column of the table. Write decisions into it and "
                "audit them with `predictions`, or draw the rows with `fairkit plan --draw`"
            )
    require_columns(roles.labelled.columns, columns, role="labelled", table=table)


def _check_query(roles: Roles) -> None:
    """Refuse what has no meaning in rankings."""
    if roles.query is None:
        return
    for name in ("cluster", "within", "reference", "sensitive_probability"):
        if getattr(roles, name):
            raise DataError(
                f"`{name}` and `query` cannot be used together: groups of a ranking are compared inside queries, and "
                f"queries are the independent units; leave `{name}` out"
            )
    if roles.weights is not None:
        raise DataError("`query` and `weights` cannot be used together: queries count the same; leave out `weights`")
    taken = {roles.label, *(column for split in roles.sensitive for column in split.columns)}
    if roles.query in taken:
        raise DataError(f"column {roles.query!r} cannot be the `query` and the label or a sensitive column at once")


# Which value of an outcome is good for the person, as far as its name and its values say.


_GOOD = frozenset({
    "accept", "accepted", "admit", "admitted", "approve", "approved", "eligible", "fulfilled", "good", "grant",
    "granted", "healthy", "hire", "hired", "invited", "paid", "pass", "passed", "promoted", "qualified", "released",
    "repaid", "retained", "selected", "stayed", "success", "successful", ">50k",
})  # fmt: skip
_BAD = frozenset({
    "arrears", "arrest", "arrested", "attrition", "bad", "bankrupt", "bankruptcy", "charged", "chargeoff", "churn",
    "churned", "decline", "declined", "default", "defaulted", "delinquency", "delinquent", "denied", "deny", "died",
    "disease", "dismissed", "dropout", "fail", "failed", "failure", "fired", "fraud", "fraudulent", "left", "loss",
    "mortality", "readmitted", "recid", "recidivism", "refuse", "refused", "reject", "rejected", "reoffend",
    "reoffended", "rearrest", "rearrested", "terminated", "unpaid", "violation",
})  # fmt: skip
YES, NO = frozenset({"1", "true", "yes", "y", "t"}), frozenset({"0", "false", "no", "n", "f"})
_NEGATED = frozenset({"no", "non", "not"})


def good_value(name: str, values: Sequence[object]) -> str | None:
    """Return the value that is good for the person; None where neither the name nor the values say so.

    Words decide: ``approved`` is good; of yes and no (also 1 and 0) it is yes for a column called ``hired``, no for
    one called ``default``, and nobody knows for one called ``y``.
    """
    texts = [value_text(value) for value in values]
    by_word = [text for text in texts if _sense(text) is True]
    if len(by_word) == 1:
        return by_word[0]
    sense = _sense(name)
    flags = {text: _is_flag(text) for text in texts}
    if sense is None or len(texts) != 2 or set(flags.values()) != {True, False}:
        return None
    return next(text for text, flag in flags.items() if flag is sense)


def is_outcome(name: str) -> bool:
    """Return whether a column's name is that of an outcome, good or bad."""
    return _sense(name) is not None


def example_of(name: str, values: Sequence[object]) -> str:
    """Return a favorable value for a message's example: the good one where it is known, else ``VALUE``."""
    return good_value(name, values) or "VALUE"


def _is_flag(text: str) -> bool | None:
    lower = text.lower()
    return True if lower in YES else False if lower in NO else None


def _sense(text: str) -> bool | None:
    """Return whether the words of a text are good or bad for a person; None where they are neither or both."""
    tokens = re.findall(r">?[a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())
    negated = bool(tokens) and tokens[0] in _NEGATED
    good, bad = any(word in _GOOD for word in tokens), any(word in _BAD for word in tokens)
    if good == bad:
        return None
    return good != negated


# Which columns of a table hold somebody's predictions: decisions, scores, chances, classes or numbers.


KEYS = ("decision", "score", "probability", "class", "prediction", "answer", "favorable")
"""What can be said about a table's predictions."""

_NEXT = re.compile(rf",(?=(?:{'|'.join(KEYS)})(?::[^=]*)?=)")
_EXAMPLE = "decision=approved,score=p"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRoles:
    """Which columns hold predictions."""

    decision: str | None = None  # binary decisions
    score: str | None = None  # the probability of the favorable label, or the predicted number of a regression
    probability: str | None = None  # the chance of the favorable decision, for decisions that are drawn
    predicted_class: str | None = None  # the predicted class
    prediction: str | None = None  # the predicted number
    answer: str | None = None
    favorable: Any = None
    class_probabilities: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plain = (self.decision, self.score, self.probability, self.predicted_class)
        if not self.columns:
            raise ParameterError(
                f"name a column of decisions, scores, classes or numbers in `predictions`, as in {_EXAMPLE}"
            )
        if self.decision is not None and self.probability is not None:
            raise ParameterError("name a column of decisions or of decision probabilities, not both")
        if self.prediction is not None and (any(plain) or self.class_probabilities):
            raise ParameterError(
                "`predictions` has predicted numbers (prediction) and decisions, scores or classes: name one kind"
            )
        if self.answer is not None and (any(plain) or self.class_probabilities or self.prediction):
            raise ParameterError("`predictions` has answers and something else: answers are audited alone")
        by_class = self.predicted_class is not None or bool(self.class_probabilities)
        if by_class and (self.decision is not None or self.probability is not None):
            raise ParameterError("`predictions` has classes and decisions: name one of the two")
        if self.class_probabilities and self.score is not None:
            raise ParameterError("`predictions` has a score and probabilities by class: name one of the two")
        if self.favorable is not None and self.decision is None and self.score is None:
            raise ParameterError("`predictions` has a favorable value but no column of decisions that holds it")

    @property
    def columns(self) -> tuple[str, ...]:
        """The named columns, each once."""
        named = (self.decision, self.score, self.probability, self.predicted_class, self.prediction, self.answer)
        every = [*(column for column in named if column), *self.class_probabilities.values()]
        return tuple(dict.fromkeys(every))

    @property
    def noted(self) -> tuple[str, ...]:
        """The columns whose distinct values must be known before rows are read."""
        return tuple(column for column in (self.decision, self.predicted_class) if column is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return the form of a configuration file, without what was not said."""
        named = {
            "decision": self.decision,
            "score": self.score,
            "probability": dict(self.class_probabilities) or self.probability,
            "class": self.predicted_class,
            "prediction": self.prediction,
            "answer": self.answer,
            "favorable": self.favorable,
        }
        return {key: value for key, value in named.items() if value is not None}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` writes."""
        for key, value in record.items():
            if key not in KEYS:
                raise ParameterError(f"`predictions` has no key {key!r}. {did_you_mean(key, KEYS, what='keys')}")
            listed = key == "probability" and isinstance(value, Mapping)
            if not (listed or key == "favorable" or isinstance(value, str)):
                raise ParameterError(f"`predictions`: {key} takes the name of a column, not {value!r}")
        chance = record.get("probability")
        by_class = chance if isinstance(chance, Mapping) else {}
        return cls(
            **{key: value for key, value in record.items() if key not in ("class", "probability")},
            probability=None if isinstance(chance, Mapping) else chance,
            predicted_class=record.get("class"),
            class_probabilities={str(label): str(column) for label, column in by_class.items()},
        )

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Read ``decision=approved,score=p`` and, by class, ``class=tier,probability:gold=p_gold``."""
        record: dict[str, Any] = {}
        for part in (part for text in texts for part in _NEXT.split(text)):
            name, equals, column = part.partition("=")
            key, colon, label = name.strip().partition(":")
            if not equals or not column or (colon and (key != "probability" or not label)):
                raise ParameterError(
                    f"`predictions`: {part!r} is not understood; write KEY=COLUMN, as in {_EXAMPLE}, and "
                    "probability:CLASS=COLUMN for the probability of a class"
                )
            if colon:
                here = record.setdefault(key, {})
                taken = not isinstance(here, dict) or label in here
            else:
                here, label, taken = record, key, key in record
            if taken:
                raise ParameterError(f"`predictions` says {name.strip()} twice; say it once")
            here[label] = column
        return cls.of(record)
