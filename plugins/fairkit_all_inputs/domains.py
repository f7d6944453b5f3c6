"""What every column may be: as the user says, else as the rows (read once, some people kept) and encoders have it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import same_value, value_meant
from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.parameters import parameter
from fairkit.results.findings import Finding
from fairkit.support.lazy_dataclass import dataclass, field, replace
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE
from fairkit_all_inputs.bounds.searching import Effort
from fairkit_onnx.structure.cells import Listed, Numbers, one_hot_groups, value_text_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.data.arrow_types import Batch
    from fairkit_all_inputs.bounds.problem import Problem
    from fairkit_all_inputs.bounds.searching import Answer
    from fairkit_onnx.structure.encoded import Features


MOST_COMBINATIONS = 64
"""Values, or combinations of values, that what changes may have."""
MOST_SHOWN = 30  # values of a column that a finding names
MOST_VALUES = 10_000
"""Distinct values of a column that are kept."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a column holds: numbers by their range, and distinct values while there are few."""

    low: float
    high: float
    whole: bool
    missing: bool
    text: bool
    values: Mapping[Any, None] | None

    @classmethod
    def of(cls, cells: NDArray[Any]) -> Seen:
        """Look at a column of a batch."""
        text = cells.dtype.kind in "OUS"
        distinct = dict.fromkeys(np.unique(cells).tolist() if not text else cells.tolist())
        values = None if len(distinct) > MOST_VALUES else {v: None for v in distinct if v == v}  # noqa: PLR0124
        if text:
            return cls(np.inf, -np.inf, False, None in distinct, True, values)
        numbers = cells.astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        whole = bool((finite == np.floor(finite)).all())
        return cls(
            float(finite.min(initial=np.inf)),
            float(finite.max(initial=-np.inf)),
            whole,
            bool(np.isnan(numbers).any()),
            cells.dtype.kind == "b",
            values,
        )

    def __add__(self, other: Seen) -> Seen:
        values = None
        if self.values is not None and other.values is not None:
            both = {**self.values, **other.values}
            values = both if len(both) <= MOST_VALUES else None
        return Seen(
            min(self.low, other.low),
            max(self.high, other.high),
            self.whole and other.whole,
            self.missing or other.missing,
            self.text or other.text,
            values,
        )


@dataclass(frozen=True, slots=True)
class People:
    """What was seen of the rows so far; `+` merges."""

    seen: Mapping[str, Seen]  # by column
    most: int  # at most so many people are kept: those of the smallest draws, with their row numbers and raw columns
    draw: NDArray[np.uint64]
    rows: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]
    weights: NDArray[np.float64] | None  # what each counts, shape [n]; None where all count the same
    count: int  # how many rows there are
    groups: frozenset[tuple[str, ...]] = frozenset()  # groups of 0-1 columns of which every row has exactly one
    combinations: Mapping[tuple[str, ...], tuple[Any, ...]] | None = None

    @classmethod
    def of(cls, batch: Batch, names: Sequence[str], most: int, seed: int, changing: Sequence[str] = ()) -> People:
        """Look at a batch; `changing`: the columns that change together."""
        columns = batch.columns(names)
        rows = np.asarray(batch.rows, dtype=np.int64)
        draw = mixed(rows, seed)
        seen = {name: Seen.of(columns[name]) for name in names}
        groups = frozenset(one_hot_groups(columns, [name for name in names if name not in changing]))
        together = {
            tuple(map(value_text_of, row)): row for row in zip(*(columns[c].tolist() for c in changing), strict=True)
        }
        return cls(seen, most, draw, rows, columns, batch.weights, len(rows), groups, _few(together))._cut()

    def __add__(self, other: People) -> People:
        columns = {n: _joined(v, other.columns[n]) for n, v in self.columns.items()}
        seen = {name: values + other.seen[name] for name, values in self.seen.items()}
        draw, rows = np.concatenate([self.draw, other.draw]), np.concatenate([self.rows, other.rows])
        weights = None
        if self.weights is not None and other.weights is not None:
            weights = np.concatenate([self.weights, other.weights])
        together = None
        if self.combinations is not None and other.combinations is not None:
            together = _few({**other.combinations, **self.combinations})
        groups = self.groups & other.groups
        count = self.count + other.count
        return People(seen, self.most, draw, rows, columns, weights, count, groups, together)._cut()

    def _cut(self) -> People:
        return self.some(np.sort(np.lexsort((self.rows, self.draw))[: self.most]))

    def some(self, rows: NDArray[Any]) -> People:
        """Return some of the people; what was seen of all rows stays."""
        return replace(
            self,
            draw=self.draw[rows],
            rows=self.rows[rows],
            columns={name: values[rows] for name, values in self.columns.items()},
            weights=None if self.weights is None else self.weights[rows],
        )

    def in_order(self) -> People:
        """Return the people by their row numbers: the same however the rows were cut."""
        return self.some(np.argsort(self.rows, kind="stable"))


def _few(together: dict[tuple[str, ...], tuple[Any, ...]]) -> dict[tuple[str, ...], tuple[Any, ...]] | None:
    return together if len(together) <= MOST_VALUES else None


def _joined(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    if one.dtype.kind == "O" or other.dtype.kind == "O":
        return np.concatenate([one.astype(object), other.astype(object)])
    return np.concatenate([one, other])


def mixed(rows: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Return a draw for each row that depends on its number and the seed only (SplitMix64)."""
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.uint64(seed % 2**64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
        z = z * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


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


def domain_texts(domains: Sequence[Numbers | Listed]) -> dict[str, str]:
    """Return by block, in words, what its columns may be."""
    result = {}
    for domain in domains:
        if isinstance(domain, Numbers):
            result[domain.name] = (
                f"{domain.low!r} to {domain.high!r}{', whole' * domain.whole}{', or missing' * domain.missing}"
            )
            continue
        texts = ["+".join(map(value_text_of, values)) or "missing" for values in domain.values]
        more = [f"{len(texts) - MOST_SHOWN} others"] if len(texts) > MOST_SHOWN else []
        result[domain.name] = ", ".join(texts[:MOST_SHOWN] + more)
    return result


def narrowed_of(
    domains: Sequence[Numbers | Listed], people: People, features: Features, parameters: Parameters
) -> list[str]:
    """Name the columns of which only values of the table are looked at: their operator is not understood."""
    narrowed = []
    for name in features.listed:
        one = next((each for each in domains[:-1] if each.name == name), None)
        if not isinstance(one, Listed) or name in parameters.domain:
            continue  # or the user states which
        seen, numbers = people.seen[name], {value for (value,) in one.values if value == value}  # noqa: PLR0124 -- NaN
        every = not seen.text and seen.whole and len(numbers) > seen.high - seen.low
        if not every and not (seen.text and features.listed[name]):  # nor is it text that an encoder lists
            narrowed.append(name)
    return narrowed


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
        values = np.arange(seen.low, seen.high + 1).tolist()  # the order is broken: every number is gone through
    if not text and seen.missing:
        values.append(np.nan)
    values += [key for key in listed.get(name, ()) if not any(same_value(key, value) for value in values)]
    if stated is not None:
        values = [value_meant(wish, values, f"all-inputs: {name!r}") for wish in _parts(stated, ",")]
    if not values:
        raise DataError(f"all-inputs: the domain of {name!r} is empty")
    return Listed(columns=(name,), values=tuple((value,) for value in values))


def _told_range(name: str, seen: Seen, stated: Any) -> Numbers:
    try:
        low, high = (float(part) for part in (_parts(stated, ":") if isinstance(stated, Sequence) else [stated] * 2))
    except (TypeError, ValueError):
        raise ParameterError(
            f"all-inputs: the domain {stated!r} of {name!r} is not understood; write all-inputs.domain.{name}=LOW:HIGH"
        ) from None
    whole = seen.whole and low.is_integer() and high.is_integer()
    return Numbers(name=name, low=low, high=high, whole=whole, missing=False)


def _parts(stated: Any, mark: str) -> list[Any]:
    return stated.split(mark) if isinstance(stated, str) else list(stated) if isinstance(stated, Sequence) else [stated]


def _combinations(people: People, changing: Sequence[str], told: Sequence[str]) -> tuple[tuple[Any, ...], ...]:
    """Return the values that the changing columns take together."""
    if told:
        return tuple(_told_values(people, changing, text) for text in told)
    alone = len(changing) == 1
    seen: Mapping[Any, Any] | None = people.seen[changing[0]].values if alone else people.combinations
    if seen is None or len(seen) > MOST_COMBINATIONS:
        what, form = ("values", "A,B") if alone else ("combinations", "A+B,C+D")
        raise DataError(
            f"all-inputs: {'+'.join(changing)} has more than {MOST_COMBINATIONS} {what}; choose some with the "
            f"parameter `all-inputs.values={form}`"
        )
    if alone:
        return tuple((value,) for value in sorted(seen, key=lambda v: (isinstance(v, str), v is None, v)))
    return tuple(sorted(seen.values(), key=lambda values: tuple(map(str, values))))


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
            chosen.append(value_meant(part, list(seen.values or ()), f"all-inputs: {name!r}"))
    return tuple(chosen)


# What the findings of one audit of all inputs share: what was asked, of whom, what answers are called and mean.


QUESTIONS = {FLIP: "all_inputs_flip", SCORE: "all_inputs_score_change", CHANCE: "all_inputs_probability_change"}
SHARE = "all_inputs_flippable"
BOUNDS = "The interval is no confidence interval: its ends are bounds that hold for every input of the domain."
NARROWED = "of {} only the table's own values were looked at (an operator that reads them is not understood): nothing \
is known of other inputs. State the values that are meant, as all-inputs.domain.COLUMN=A,B"
MEANING = {
    FLIP: "1: there is an input whose decision changes with these columns alone; 0: it is proved that there is none.",
    SCORE: "The largest change of the sum that the score is made of, over all inputs of the domain.",
    CHANCE: "The largest change of the score as a probability, over all inputs of the domain.",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditScope:
    """What the findings of one audit share."""

    told: Parameters  # the parameters, and the audit
    changing: Sequence[str]  # the columns that change
    people: People  # what was seen of the rows
    context: AuditContext  # the parameters, and the audit
    began: float = field(default_factory=time.monotonic)  # when the audit did, on the monotonic clock
    searched: bool = True  # whether the search was compiled in time
    domain: Mapping[str, str] = field(default_factory=dict)  # by block, what its columns may be, in words
    narrowed: Sequence[str] = ()  # the columns of which only values of the table were looked at

    @property
    def place(self) -> str:
        """The columns that change, as a policy names them."""
        return "+".join(self.changing)

    @property
    def seconds_left(self) -> float:
        """How long all that is left may take; infinite where no time was said."""
        if self.told.seconds is None:
            return math.inf
        return max(self.told.seconds - (time.monotonic() - self.began), 0.0)

    def effort(self, left: int = 1) -> Effort:
        """Return how much a question may cost: with `seconds`, an even share of what is left of them for the audit."""
        if self.told.seconds is None:
            return Effort(boxes=self.told.boxes)
        return Effort(boxes=self.told.boxes, seconds=self.seconds_left / max(left, 1))

    def finding(
        self, metric: str, lower: float, upper: float, evidence: Mapping[str, Any], notes: Sequence[str]
    ) -> Finding:
        """Return a finding whose interval does not depend on a confidence; no proof where a column was narrowed."""
        flips = metric == QUESTIONS[FLIP]
        open_ = bool(self.narrowed) and metric != SHARE and not (flips and lower == 1.0)
        interval = (lower, 1.0 if open_ and flips else upper)
        narrowed = {"decided": False, "narrowed": ", ".join(self.narrowed)} if open_ else {}
        evidence = {**evidence, **narrowed, "domain": dict(self.domain)}
        return Finding(
            auditor="all-inputs",
            metric=metric,
            sensitive=self.place,
            value=lower,
            interval=interval,
            confidence=self.context.confidence,
            better="lower",
            evidence=evidence,
            notes=tuple(notes),
            inconclusive=NARROWED.format(", ".join(self.narrowed)) if open_ else None,
            interval_at=lambda _: interval,
        )

    def signed(self, metric: str) -> Finding | None:
        """Return the signed finding about a metric while a certificate is checked, else None."""
        mine = [f for f in self.context.signed if f.auditor == "all-inputs" and f.metric == metric]
        return next((f for f in mine if f.sensitive == self.place), None)


def interval_of(problem: Problem, kind: int, got: Answer, *, found: bool) -> tuple[float, float]:
    """Return bounds that hold for the model as the runtime rounds it."""
    if kind == FLIP:
        if found:
            return 1.0, 1.0
        return (0.0, 0.0) if got.upper <= -problem.rounding else (0.0, 1.0)
    lower = max(got.lower, 0.0)
    if kind == SCORE:
        return lower, max(got.upper, 0.0) + 2.0 * problem.rounding
    return lower, min(1.0, max(got.upper, 0.0) + 0.5 * problem.rounding + 1e-6)


def meet(problem: Problem, kind: int, lower: float) -> float:
    """Return how far apart the ends of a decided interval may be."""
    return 2.1 * problem.rounding + 1e-6 * max(1.0, lower) + (2e-5 if kind == CHANCE else 0.0)


NOT_COMPILED = (
    "Nothing was searched: within that time the search itself was not compiled, which numba does once for each version "
    "and machine. What was compiled is kept; more seconds, or none given, finish it."
)


def state_of(scope: AuditScope, *, decided: bool) -> list[str]:
    """Say where a question is not decided, and what would decide it."""
    if decided:
        return []
    more = [] if scope.searched else [NOT_COMPILED]
    limit = f"{scope.told.boxes:,} boxes" + ("" if scope.told.seconds is None else f" or {scope.told.seconds:g} s")
    return [
        f"Not decided with {limit}: the truth lies in the interval. More work narrows it (`all-inputs.boxes=N`).",
        *more,
    ]


# What can be set with --set all-inputs.KEY=VALUE.


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What can be set with --set all-inputs.KEY=VALUE."""

    columns: tuple[str, ...] = parameter(
        (), help="Columns that change, all of them together; by default the sensitive ones that the model reads."
    )
    values: tuple[str, ...] = parameter(
        (),
        help="The values that they change between, of several columns joined by +, as Husband+Male,Wife+Female; "
        "default: all that the data has.",
    )
    domain: Mapping[str, Any] = parameter(
        {},
        help="What another column may be, as all-inputs.domain.age=17:90 or all-inputs.domain.job=A,B; default: the "
        "data's range of numbers, and the values of the model's encoder or of the data.",
    )
    one_hot: bool = parameter(
        True, help="Whether 0-1 columns with a common beginning, of which each row has exactly one, go together."
    )
    people: int = parameter(
        1_000, help="So many people of the data, drawn at random, are looked at for flippable.", minimum=1
    )
    boxes: int = parameter(200_000, help="How many boxes each question may split.", minimum=1)
    seconds: float | None = parameter(
        None,
        help="How long the audit may take, the search's compilation included, besides running the rows once more; "
        "default: no limit but boxes: equal inputs give equal bounds.",
        above=0,
    )
    save_proof: str | None = parameter(
        None, help="A JSON file for the cells of trees and the proof logs, for an independent checker."
    )
