"""One look at all counts, and the course of each number over the days."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_watch.alarms import windows
from fairkit_watch.judging import MANY_UNRESOLVED, Judge, Path, reason, unresolved, verdict
from fairkit_watch.questions import needs_labels
from fairkit_watch.results import GroupLook, RuleLook
from fairkit_watch.settings import WINDOWS_A_YEAR
from fairkit_watch.totals import NOT_DRAWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_watch.judging import Verdict
    from fairkit_watch.questions import Question
    from fairkit_watch.totals import Daily, Split

    Array = NDArray[np.float64]

POINTS = 160
"""Days of a course; more are thinned."""

_ORDER: Mapping[Verdict, int] = {"pass": 0, "undecided": 1, "fail": 2}


def rule_looks(judge: Judge, data: Daily, *, weeks: bool = True) -> tuple[RuleLook, ...]:
    """Return every rule at the newest day; the current week alone too, where that is asked for."""
    week = (windows(data.days)[-1:] or [(0, 0)])[0] if weeks else None
    return tuple(_rule(judge, question, data, week) for question in judge.questions)


def _rule(judge: Judge, question: Question, data: Daily, week: tuple[int, int] | None) -> RuleLook:
    split = data.splits[question.split]
    parts = split.summed()
    value, interval = judge.interval(question, split, parts).at()
    recent: tuple[float | None, tuple[float, float] | None] = (None, None)
    if week is not None:
        recent = judge.interval(question, split, split.window(*week).summed(), 1 / WINDOWS_A_YEAR).at()
    low, high = interval or (math.nan, math.nan)
    outcome = verdict(question, low, high)
    text = reason(question, value, interval, data.days[0] if data.days else "the start")
    refused = judge.refused(question, parts)
    if refused is not None:
        outcome, text = "undecided", refused
    open_ = unresolved(parts) if question.needs_labels else 0.0
    if open_ > MANY_UNRESOLVED:
        text += f"; the outcome of {open_:.1%} of the decisions is not known, and the interval allows for any"
    reference = judge.settings.reference.numbers.get(question.name)
    return RuleLook(
        metric=question.rule.metric,
        sensitive=question.split or None,
        kind=question.rule.side,
        limit=question.limit,
        value=value,
        interval=interval,
        verdict=outcome,
        reason=question.rule.with_scenario(text),
        unresolved=open_,
        week=(*recent, verdict(question, *(recent[1] or (math.nan, math.nan)))),
        reference=None if reference is None else (reference[0], (reference[1], reference[2])),
    )


def group_looks(judge: Judge, data: Daily) -> tuple[GroupLook, ...]:
    """Return every group at the newest day."""
    looks: list[GroupLook] = []
    for name, split in data.splits.items():
        if name == "" and len(data.splits) > 1:
            continue
        parts = split.summed()
        rows = parts["d"].sum(axis=-1)
        bands = {rate.name: judge.rates(rate, split, parts, name) for at, rate in judge.watched() if at == name}
        if judge.settings.columns.score is not None:
            bands["mean_score"] = judge.means(split, parts)
        for g, group in enumerate(split.groups):
            share = float(rows[g] / rows.sum()) if rows.sum() else 0.0
            looks.append(
                GroupLook(
                    split=name,
                    group=group,
                    rows=round(float(rows[g])),
                    share=share,
                    expected=g < split.declared,
                    rates={key: band.at(g) for key, band in bands.items()},
                )
            )
    return tuple(looks)


def worst(looks: Sequence[RuleLook]) -> Verdict | None:
    """Return the worst verdict; None where there are no rules."""
    return max((one.verdict for one in looks), key=lambda one: _ORDER[one], default=None)


def missing_days(days: Sequence[str]) -> tuple[str, ...]:
    """Return the days between the first and the last that are not among them."""
    if not days:
        return ()
    first, last = (datetime.date.fromisoformat(day) for day in (days[0], days[-1]))
    every = (first + datetime.timedelta(step) for step in range((last - first).days + 1))
    present = set(days)
    return tuple(day.isoformat() for day in every if day.isoformat() not in present)


@dataclass(frozen=True, slots=True)
class Course:
    """A number over the days, and week by week."""

    question: Question  # the rule
    days: tuple[str, ...]  # the days of `path`, thinned to about `POINTS`; the last one is the newest
    path: Path  # of all decisions up to the day, shape [T]
    weeks: tuple[tuple[str, str, float | None, tuple[float, float] | None], ...]


def courses(judge: Judge, data: Daily) -> tuple[Course, ...]:
    """Return every rule's course."""
    return tuple(_course(judge, question, data) for question in judge.questions)


def _course(judge: Judge, question: Question, data: Daily) -> Course:
    split = data.splits[question.split]
    at = _thinned(len(data.days))
    cumulated = {key: part[at] for key, part in split.cumulated().items()}
    path = judge.interval(question, split, cumulated)
    if judge.refused(question, split.summed()) is not None:
        path = Path(path.value, np.full_like(path.low, np.nan), np.full_like(path.high, np.nan))
    weekly = windows(data.days)
    sums = {key: _summed(part, weekly) for key, part in split.parts.items()}
    own = judge.interval(question, split, sums, 1 / WINDOWS_A_YEAR)
    weeks = tuple((data.days[start], data.days[stop - 1], *own.at(i)) for i, (start, stop) in enumerate(weekly))
    return Course(question, tuple(data.days[t] for t in at.tolist()), path, weeks)


def _summed(values: Array, weeks: Sequence[tuple[int, int]]) -> Array:
    """Return the sums over the days of each week, shape [W, ...]."""
    sums = [values[start:stop].sum(axis=0) for start, stop in weeks]
    return np.array(sums).reshape((len(weeks), *values.shape[1:]))


def _thinned(days: int) -> NDArray[np.intp]:
    if days <= POINTS:
        return np.arange(days)
    return np.unique(np.linspace(0, days - 1, POINTS).round().astype(np.intp))


def weekly_shares(data: Daily, split: Split) -> tuple[tuple[str, ...], Array]:
    """Return each group's share of the decisions, week by week: the weeks' first days, and shape [W, G]."""
    weekly = windows(data.days)
    rows = split.parts["d"].sum(axis=-1)
    sums = _summed(rows, weekly)
    total = sums.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(total > 0, sums / total, np.nan)
    return tuple(data.days[start] for start, _ in weekly), shares


def labels_wanted(judge: Judge) -> bool:
    """Say whether any rule needs outcomes."""
    return any(needs_labels(rate) for _, rate in judge.watched())


def notes_of(judge: Judge, odd: Mapping[str, int], data: Daily) -> tuple[str, ...]:
    """Return sentences that a reader must know."""
    notes = []
    aliases: dict[Any, str] = {}
    for question in judge.questions:
        other = aliases.setdefault(question.same, question.name)
        if other != question.name:
            notes.append(
                f"{question.name} and {other} are one number under two names; they share one part of the error "
                "probability"
            )
    if NOT_DRAWN in data.splits[""].parts:
        drawn, others = (float(data.splits[""].parts[key].sum()) for key in ("c", NOT_DRAWN))
        notes.append(
            f"outcomes of {drawn:,.0f} of {drawn + others:,.0f} decisions are known, drawn at random by whoever looked "
            "them up: numbers that need an outcome are of these"
        )
    if judge.settings.columns.weights is not None:
        notes.append("decisions have weights: all intervals are asymptotic, and begin at 100 effective decisions")
    if odd.get("clock"):
        notes.append(f"the clock of this machine went back {odd['clock']} times between writes")
    known = {split for split in judge.settings.groups if judge.settings.groups[split]}
    for name, split in data.splits.items():
        if name and name not in known and data.days:
            notes.append(
                f"no groups of {name} were declared at the start; those of the first day "
                f"({', '.join(split.groups[: split.declared])}) count as declared"
            )
    return tuple(notes)
