"""`fairkit.advise`: the guide's questions, the answers' metrics with reasons, limits in people, and what cannot hold.

The questions, situations, reasons and sources are data: ``tree.toml``. This module looks at a table, takes the first
situation that fits the answers, and says with the table's own numbers what follows.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ParameterError, PolicyError
from fairkit.support.calls import checked
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.planning.assumptions import Target, Truth
    from fairkit.results.rules import Rule

LEAST_CELL = 100  # people in every cell of an intersection that is offered
_EXAMPLE_PRECISION, _EXAMPLE_MISSED = 0.8, 0.2  # what the example of conflicting definitions assumes
_UNDECIDED = "too few people: even an equal model would not pass surely"


@cache
def tree() -> Mapping[str, Any]:
    """Return the questions, situations, laws and house limits of the guide."""
    return tomllib.loads((files("fairkit_guide") / "tree.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """A metric with the reason for it, or against it.

    Attributes
    ----------
    metric
        Its name, as a rule takes it.
    why
        One sentence.
    rule
        Whether the guide makes a rule of it; the others describe.
    """

    metric: str
    why: str
    rule: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSize:
    """One group of the table.

    Attributes
    ----------
    sensitive, group
        The column and the group.
    people
        Rows of the group.
    favorable
        Those of them with the favorable outcome; None without an outcome of two values.
    interval
        Limits of the share of favorable outcomes, in [0, 1].
    """

    sensitive: str
    group: str
    people: int
    favorable: int | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChoice:
    """One limit: what it means in people, and what this table can decide about it.

    Attributes
    ----------
    limit
        The number.
    people
        What it allows, in a sentence.
    decides
        By sensitive column: what the table can decide, in a sentence.
    passable
        The sensitive columns in which a perfectly equal model would pass with a chance of 80 %.
    """

    limit: float
    people: str
    decides: Mapping[str, str]
    passable: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What the guide says about one table and one use.

    Attributes
    ----------
    answers
        The answer to each question, by its key; `defaults` names the questions that nobody answered.
    situation, misses, sources
        The situation that fits, what its metrics do not protect from, and where the reasons come from.
    metrics, avoid
        One to three metrics, the first of which makes the rule; and what is not used, with the reason.
    conflicts
        Which definitions cannot hold together, with the numbers of this table.
    limits, side, origin
        The rule's limit by sensitive column (None: yours to choose), ``max`` or ``min``, and where it comes from.
    choices
        Other limits, in people.
    few
        The groups with too few people for the limit, in sentences.
    groups
        Every group of the table.
    data
        The settings of the table: path, label, favorable, sensitive, ...
    task
        binary, multiclass, regression or ranking.
    """

    answers: Mapping[str, str]
    defaults: tuple[str, ...]
    situation: str
    misses: str
    sources: tuple[str, ...]
    metrics: tuple[Recommended, ...]
    avoid: tuple[Recommended, ...]
    conflicts: tuple[str, ...]
    limits: Mapping[str, float | None]
    side: str
    origin: str
    choices: tuple[LimitChoice, ...]
    few: tuple[str, ...]
    groups: tuple[GroupSize, ...]
    data: Mapping[str, Any]
    task: str
    intersections: tuple[str, ...] = field(default=())

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The ``[[policy]]`` tables that follow; none where the limit is yours to choose."""
        metric = self.metrics[0].metric
        limits = self.limits.items()
        return [{"metric": metric, "sensitive": name, self.side: limit} for name, limit in limits if limit is not None]

    @property
    def about(self) -> dict[str, str]:
        """The reasons as facts of the report and the certificate (the table ``[about]``)."""
        answers = "; ".join(f"{key}: {value}" for key, value in self.answers.items())
        return {
            "metric": f"{self.metrics[0].metric}. {self.metrics[0].why}",
            "metric_not_used": "; ".join(f"{avoided.metric}: {avoided.why}" for avoided in self.avoid),
            "metric_misses": self.misses,
            "limit_origin": self.origin,
            "guide_answers": answers,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, schema ``fairkit.advice/1``."""
        return {"schema": "fairkit.advice/1", **record_of(self), "rules": self.rules, "about": self.about}

    def __str__(self) -> str:
        """Return the advice as lines of text."""
        return "\n".join("  " * depth + text for depth, text in self.lines())

    def lines(self) -> list[tuple[int, str]]:
        """Return the advice as lines with their depth."""
        lines = [(0, f"Situation: {self.situation}."), (0, "Metrics")]
        lines += [(1, f"{'rule' if metric.rule else 'also'}  {metric.metric}: {metric.why}") for metric in self.metrics]
        lines += [(1, f"not   {avoided.metric}: {avoided.why}") for avoided in self.avoid]
        if self.conflicts:
            lines += [(0, "What cannot hold together in this table"), *((1, text) for text in self.conflicts)]
        word = "at most" if self.side == "max" else "at least"
        chosen = [f"{name} {word} {limit:g}" for name, limit in self.limits.items() if limit is not None]
        lines += [(0, f"Limit: {', '.join(chosen) or 'yours to choose'}"), (1, self.origin)]
        for choice in self.choices:
            lines.append((1, f"{choice.limit:g}: {choice.people}"))
            lines += [(2, f"{name}: {text}") for name, text in choice.decides.items()]
        if self.few:
            lines += [(0, "Too few people for the limit"), *((1, text) for text in self.few)]
        if self.intersections:
            lines.append((0, f"Enough people in every cell to look at: {', '.join(self.intersections)}"))
        return [*lines, (0, f"Not seen: {self.misses}"), (0, f"Sources: {', '.join(self.sources)}")]


@checked
def advise(
    data: Any,
    *,
    label: str | None = None,
    favorable: Any = None,
    sensitive: Sequence[str] | str | None = None,
    query: str | None = None,
    decides: str | None = None,
    labels: str | None = None,
    errors: str | None = None,
    use: str | None = None,
    law: str | None = None,
    groups: str | None = None,
) -> Advice:
    """Return which metric, which limit and which groups fit a table and its use, with the reasons.

    Parameters
    ----------
    data
        What `fairkit.load_data` takes: a file, an address, a data frame.
    label, favorable, sensitive, query
        The roles of columns, as in `fairkit.load_data`; what is left out is guessed from names and values.
    decides, labels, errors, use, law, groups
        The answers: ``give`` or ``take``; ``trusted``, ``past``, ``selective`` or ``none``; ``refusal``, ``approval``
        or ``both``; ``screen``, ``rank``, ``score`` or ``price``; the name of a pack; ``may`` or ``may-not``. One that
        is left out has the default of the guide.

    Returns
    -------
    Advice
        Metrics with reasons, a limit with its origin, what cannot hold together. It never says that anything is fair.

    Raises
    ------
    DataError
        There is no sensitive column, or it is not known which outcome is favorable.
    ParameterError
        An answer is none of the question's.
    """
    from fairkit.data.loading import load_data
    from fairkit_guide.roles import guess_roles

    guess = guess_roles(data)
    typed = {
        "label": label,
        "favorable": favorable,
        "sensitive": [sensitive] if isinstance(sensitive, str) else sensitive,
    }
    roles: dict[str, Any] = guess | {key: value for key, value in typed.items() if value is not None}
    choices = roles.pop("asked", None)
    if label is not None and label != guess.get("label"):
        roles.pop("favorable", None) if favorable is None else None
        choices = None
    if not roles.get("sensitive"):
        raise DataError("no column is known to hold groups; name them with `sensitive`, as in `sensitive=sex,race`")
    if roles.get("label") is not None and roles.get("favorable") is None and choices:
        raise DataError(
            f"which value of {roles['label']!r} is good for the person? Say so with `favorable` "
            f"({' or '.join(map(repr, choices))}); a wrong answer turns every reason round"
        )
    if query is not None:
        roles["query"] = query
    answers_given = {"decides": decides, "labels": labels, "errors": errors, "use": use, "law": law, "groups": groups}
    if roles.get("label") is None and labels is None:
        answers_given["labels"] = "none"
    answers = check_answers(answers_given)
    dataset = load_data(data, **roles)
    return _advise(dataset, roles, answers, tuple(key for key, value in answers_given.items() if value is None))


def check_answers(given: Mapping[str, str | None]) -> dict[str, str]:
    """Return an answer to each question: what was given, else the default; a law must be the name of a pack."""
    answers = {}
    for question in tree()["questions"]:
        key = question["key"]
        value = given.get(key) or question["default"]
        allowed = list(question["answers"])
        if key == "law" and value != "none":
            from fairkit.plugins.finding import pack_plugins

            allowed += sorted(pack.name for plugin in pack_plugins()[0] for pack in plugin.packs)
        if value not in allowed:
            raise ParameterError(
                f"{key}={value!r} is not an answer to {question['asks']!r}; it is {' or '.join(allowed)}"
            )
        answers[key] = value
    return answers


def _advise(
    dataset: Dataset, roles: Mapping[str, Any], answers: Mapping[str, str], defaults: tuple[str, ...]
) -> Advice:
    from fairkit.data.task import choose_task

    task = choose_task(dataset, None) if dataset.roles.label is not None else "binary"
    if task == "multiclass" and dataset.roles.favorable is not None:
        task = "binary"  # one class is the favorable one, and an audit asks who gets it
    if task == "multiclass" and answers["use"] == "rank":
        raise DataError(
            f"the label {dataset.roles.label!r} holds grades: for a ranking name the column that says which rows are "
            "ranked together with `query`, or the grade that is good with `favorable`"
        )
    sizes = group_sizes(dataset, task)
    chosen = situation(task, answers)
    metrics = tuple(
        Recommended(metric=metric["metric"], why=metric["why"], rule=bool(metric.get("max") or metric.get("min")))
        for metric in chosen["metrics"]
    )
    side = "min" if chosen["metrics"][0].get("min") else "max"
    law = tree()["laws"].get(answers["law"], {})
    if law.get("metric") and task == "binary" and law["metric"] != metrics[0].metric:
        first = Recommended(metric=law["metric"], why=f"{law['says']} ({law['clause']})", rule=True)
        rest = [
            Recommended(metric=metric.metric, why=metric.why) for metric in metrics if metric.metric != first.metric
        ]
        metrics, side = (first, *rest[:2]), "min"
    avoid = tuple(
        Recommended(metric=metric["metric"], why=metric["why"])
        for metric in chosen["not"]
        if metric["metric"] != metrics[0].metric
    )
    choices = limit_choices(metrics[0].metric, side, sizes, task)
    columns = list(_by_column(sizes))
    limits, origin = _limits(metrics[0].metric, side, answers["law"], law, choices, columns)
    return Advice(
        answers=answers,
        defaults=defaults,
        situation=chosen["name"],
        misses=chosen["misses"],
        sources=tuple(chosen["sources"]),
        metrics=metrics,
        avoid=avoid,
        conflicts=tuple(conflicts(sizes)) if task == "binary" and answers["labels"] == "trusted" else (),
        limits=limits,
        side=side,
        origin=origin,
        choices=choices,
        few=tuple(too_few(metrics[0].metric, side, limits, sizes)),
        groups=tuple(sizes),
        data={key: value for key, value in roles.items() if key != "predictions" or task == "binary"},
        task=task,
        intersections=tuple(_intersections(dataset)),
    )


def situation(task: str, answers: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the first situation of the tree that fits the task and the answers."""
    facts = {"task": task, **answers}
    for case in tree()["situations"]:
        if "task" not in case["when"] and task != "binary":
            continue
        if all(facts[key] in values for key, values in case["when"].items()):
            return case  # type: ignore[no-any-return]
    raise ParameterError(f"the guide has no situation for {facts}")  # the last ones of each task have few conditions


def group_sizes(dataset: Dataset, task: str) -> list[GroupSize]:
    """Count people, and people with the favorable outcome, by group."""
    from fairkit.intervals import two_sided, wilson

    profile = dataset.learn()
    counted = (
        dataset.roles.favorable is not None and dataset.roles.label is not None and task in ("binary", "multiclass")
    )
    totals = {name: np.zeros((2, len(dataset.group_names(name)))) for name in profile.groups}
    for batch in dataset.batches(partial=True):
        for name, total in totals.items():
            codes = batch.groups[name]
            inside = codes >= 0
            total[0] += np.bincount(codes[inside], minlength=total.shape[1])
            if counted and batch.favorable is not None:
                total[1] += np.bincount(codes[inside & batch.favorable], minlength=total.shape[1])
    sizes = []
    for name, total in totals.items():
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = wilson(total[1] / total[0], total[0], two_sided(0.95))
        for k, group in enumerate(dataset.group_names(name)):
            people, good = int(total[0, k]), int(total[1, k])
            sizes.append(
                GroupSize(
                    sensitive=name, group=group, people=people, favorable=good if counted else None,
                    interval=(float(low[k]), float(high[k])) if counted and people else None,
                )
            )  # fmt: skip
    return sizes


def conflicts(sizes: Sequence[GroupSize]) -> list[str]:
    """Say which definitions cannot hold together in this table.

    With base rate p, precision v and false negative rate m: FPR = p/(1-p) (1-v)/v (1-m) (Chouldechova 2017).
    """
    from fairkit.intervals import difference_limits, two_sided, wilson

    sentences = []
    for name, group in _by_column(sizes).items():
        rated = [row for row in group if row.people >= 30 and row.favorable is not None and row.interval is not None]
        if len(rated) < 2:
            continue
        low, high = (f(rated, key=lambda row: (row.favorable or 0) / row.people) for f in (min, max))
        p, q = (float(row.favorable or 0) / row.people for row in (low, high))
        rates, people = np.array([p, q]), np.array([float(low.people), float(high.people)])
        second, first = np.array([1]), np.array([0])
        lower, _ = difference_limits(rates, partial(wilson, rates, people), two_sided(0.95), second, first)
        if not float(lower[0]) > 0:
            sentences.append(
                f"{name}: the shares of favorable outcomes do not surely differ; no conflict is shown by these data."
            )
            continue
        wrong = [
            share / (1 - share) * (1 - _EXAMPLE_PRECISION) / _EXAMPLE_PRECISION * (1 - _EXAMPLE_MISSED)
            for share in (p, q)
            if share < 1
        ]
        example = (
            f" With precision {_EXAMPLE_PRECISION:g} and false negative rate {_EXAMPLE_MISSED:g} in both, the false "
            f"positive rates would be {min(wrong[0], 1):.2f} and {min(wrong[1], 1):.2f}."
            if len(wrong) == 2
            else ""
        )
        rule = "Equal precision, false positive and false negative rates cannot all hold unless decisions are perfect."
        said = " " + rule if not any(rule in text for text in sentences) else ""
        sentences.append(
            f"{name}: {p:.1%} of {low.group} and {q:.1%} of {high.group} have the favorable outcome.{said}{example}"
        )
    return sentences


def limit_choices(metric: str, side: str, sizes: Sequence[GroupSize], task: str) -> tuple[LimitChoice, ...]:
    """Return the house's limits in people, and what this table can decide about each."""
    house = tree()["house"]
    target = _target(metric) if task == "binary" else None
    if target is None:
        return ()
    made = []
    for limit in house["ratio" if side == "min" else "difference"]:
        decides: dict[str, str] = {}
        passable: list[str] = []
        for name, group in _by_column(sizes).items():
            text, sure = _decides(target, metric, limit, side, group)
            decides[name] = text
            passable += [name] if sure else []
        made.append(LimitChoice(limit=limit, people=_people(target, limit), decides=decides, passable=tuple(passable)))
    return tuple(made)


def _limits(
    metric: str, side: str, name: str, law: Mapping[str, Any], choices: Sequence[LimitChoice], columns: Sequence[str]
) -> tuple[dict[str, float | None], str]:
    """Return the limit by sensitive column, and where it comes from."""
    if law.get("limit") is not None and law["metric"] == metric:
        return dict.fromkeys(columns, float(law["limit"])), f"{name}, {law['clause']}. {law['says']}"
    named = f" The pack {name} names no limit." if name != "none" else ""
    if not choices:
        return dict.fromkeys(columns), f"Yours to choose: the house has no default for {metric}.{named}"
    if side == "min":
        origin = "House default, yours to change: four fifths, a rule of thumb for selection rates."
        return dict.fromkeys(columns, 0.8), f"{origin}{named}"
    limits: dict[str, float | None] = {
        column: next((c.limit for c in choices if column in c.passable), choices[-1].limit) for column in columns
    }
    origin = "House default, yours to change: the smallest of its limits that this table can decide, else the largest."
    return limits, f"{origin}{named}"


def too_few(metric: str, side: str, limits: Mapping[str, float | None], sizes: Sequence[GroupSize]) -> list[str]:
    """Say for which columns the table has too few people for the limit, and how many rows would do."""
    from fairkit.planning.advice import closed_form
    from fairkit.planning.assumptions import LEAST
    from fairkit.planning.results import MOST, two_digits

    target, sentences = _target(metric), []
    for name, group in _by_column(sizes).items():
        sentences += [
            f"{name}: {row.group} has {row.people:,} people, fewer than {LEAST}" for row in group if row.people < LEAST
        ]
        limit = limits.get(name)
        usable = [] if target is None else [row for row in group if min(_over(target, row)) >= LEAST]
        if target is None or limit is None or len(usable) < 2:
            continue
        truth = _truth(target, usable)
        needed = closed_form(target, truth, _rule(metric, limit, side), 0.95, 0.8)
        if needed > sum(row.people for row in usable):
            least = min(usable, key=lambda row: min(_over(target, row)))
            rows = f"takes about {two_digits(needed):,} rows like these" if needed <= MOST else "cannot be decided"
            have = f"{min(_over(target, least)):,} {_counted(target)}"
            sentences.append(f"{name}: {least.group} has {have}; the limit {limit:g} {rows}")
    return sentences


def _rule(metric: str, limit: float, side: str) -> Rule:
    from fairkit.results.rules import Rule

    return Rule(metric, None, max=limit) if side == "max" else Rule(metric, None, min=limit)


def _truth(target: Target, groups: Sequence[GroupSize]) -> Truth:
    """Return what a plan assumes of equal groups: rates of one half, the worst case for differences."""
    from fairkit.planning.assumptions import Truth

    inside = np.array([_over(target, group) for group in groups], float).T.reshape(len(target.rates), -1)
    people = np.array([group.people for group in groups], float)
    nothing = np.zeros_like(inside)
    return Truth(
        names=tuple(group.group for group in groups), shares=people / people.sum(), rates=np.full_like(inside, 0.5),
        bases=inside / people, rows=np.zeros_like(people), denominators=nothing, counted=nothing,
    )  # fmt: skip


def _by_column(sizes: Sequence[GroupSize]) -> dict[str, list[GroupSize]]:
    columns: dict[str, list[GroupSize]] = {}
    for size in sizes:
        columns.setdefault(size.sensitive, []).append(size)
    return columns


def _target(metric: str) -> Target | None:
    from fairkit.planning.assumptions import target_of
    from fairkit.planning.run import installed

    try:
        return target_of(metric, installed())
    except PolicyError:
        return None


def _over(target: Target, one: GroupSize) -> list[int]:
    """Return how many of a group's people each rate of the target is over: all, or those of one outcome."""
    if one.favorable is None:
        return [one.people]
    counts = {"selection_rate": one.people, "true_positive_rate": one.favorable}
    counts |= {"false_negative_rate": one.favorable}
    counts |= dict.fromkeys(("false_positive_rate", "true_negative_rate"), one.people - one.favorable)
    return [counts.get(rate.name, one.people) for rate in target.rates]


def _counted(target: Target) -> str:
    names = {rate.name for rate in target.rates}
    if names == {"true_positive_rate"}:
        return "people with the favorable outcome"
    if names == {"false_positive_rate"}:
        return "people with the unfavorable outcome"
    return "people of each outcome" if len(names) > 1 else "people"


def _people(target: Target, limit: float) -> str:
    """Return what a limit allows, in people."""
    over = {"true_positive_rate": "who qualify", "false_positive_rate": "who do not qualify"}
    who = " or ".join(over[rate.name] for rate in target.rates if rate.name in over)
    of = f"people {who}" if who else "people"
    if target.kind == "ratio":
        return f"where 500 of 1,000 {of} of one group are approved, at least {round(500 * limit):,} of another must be."
    return f"of 1,000 {of}, one group may have up to {round(1000 * limit):,} approvals fewer than another."


def _decides(target: Target, metric: str, limit: float, side: str, group: Sequence[GroupSize]) -> tuple[str, bool]:
    """Return what this many people can decide about a limit, at rates of one half, the worst case for differences."""
    from fairkit.planning.advice import detectable
    from fairkit.planning.assumptions import LEAST

    usable = [row for row in group if min(_over(target, row)) >= LEAST]
    small = len(group) - len(usable)
    left = f" ({small} group{'s' * (small > 1)} under {LEAST} left out)" if small else ""
    if len(usable) < 2:
        return f"groups are too small{left}", False
    truth = _truth(target, usable)
    inside = truth.bases * truth.shares * sum(row.people for row in usable)
    found = detectable(target, truth, inside, _rule(metric, limit, side), 0.95, 0.8)
    if found is None or found.passes_up_to is None:
        return f"{_UNDECIDED}{left}", False
    smallest = round(inside.min())
    word = "difference under" if target.kind == "difference" else "ratio over"
    needs = "a perfectly equal model" if math.isclose(found.passes_up_to, float(side == "min")) else f"a true {word}"
    edge = "" if needs.startswith("a perfectly") else f" {found.passes_up_to:.2g}"
    return f"with {smallest:,} {_counted(target)} in the smallest group, {needs}{edge} passes{left}", True


def _intersections(dataset: Dataset) -> list[str]:
    """Return the pairs of sensitive columns whose every cell has people enough to be looked at."""
    names = [split.name for split in dataset.splits if "+" not in split.name]
    cells = {(a, b): np.zeros((len(dataset.group_names(a)), len(dataset.group_names(b)))) for a, b in _pairs(names)}
    for batch in dataset.batches():
        for (a, b), counts in cells.items():
            np.add.at(counts, (batch.groups[a], batch.groups[b]), 1)
    return [f"{a}+{b}" for (a, b), counts in cells.items() if counts.size and counts.min() >= LEAST_CELL]


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(a, b) for k, a in enumerate(names) for b in names[k + 1 :]]
