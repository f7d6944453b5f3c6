"""From divided gaps to findings."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import HIGHEST, LARGEST, reference_of, value_text
from fairkit.errors import DataError, ParameterError
from fairkit.fitted import Run
from fairkit.results.findings import Finding, GroupValue, in_words
from fairkit.support.lazy_dataclass import dataclass
from fairkit_watch.counting import NAMES, Cells, parts_of
from fairkit_why.audit_rows import (
    PEOPLE,
    People,
    allowed_columns,
    cells_of,
    conditions_of,
    design_effects,
    label_error,
    metrics_of,
    players_of,
)
from fairkit_why.chart import FEWEST, VARIANCE_ROWS, Divided, Pair
from fairkit_why.conditional_gap import Comparison, Left, unexplained
from fairkit_why.exact_trees import read_exact
from fairkit_why.permutation_walks import Noise, OneClass, asks_of, shares

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.data.table import Table
    from fairkit_why.audit_rows import Collected, Parameters
    from fairkit_why.exact_trees import ExactScore

    Array = NDArray[np.float64]
    Interval = tuple[float, float]


ABOUT = "About this model on these rows. Retraining without a column may not close the gap."
EXACT = "Exact: means over all pairs of a row of either group, of the log-odds of a favorable decision."
_RATES = {"true_positive_rate": 1.0, "false_positive_rate": 0.0}


def findings(chosen: Parameters, total: Collected, context: AuditContext) -> list[Finding]:
    """Divide the gaps of every sensitive column."""
    why = Why(chosen, context, People(total.smallest()))
    results: list[Finding] = []
    for pair in why.pairs():
        gaps = [division for of in metrics_of(chosen, context) if (division := divided(why, pair, of)) is not None]
        results += [_attribution(why, pair, gap) for gap in gaps]
        results += _parts(why, pair)
        if chosen.allowed:
            results += _unexplained(why, pair)
        if chosen.refit is not None:
            results += refitted(why, pair, gaps)
    return results


def divided(why: Why, pair: Pair, of: str) -> Divided | Finding | None:
    """Divide one gap; None where it was not asked for and cannot be."""
    explicit = bool(why.chosen.metric)
    if why.recorded:
        return None
    rows = pair.only(_RATES[of]) if of in _RATES else pair
    if min(map(len, rows.rows)) < FEWEST:
        return _too_few(why, rows, of)
    if of in ("score", "prediction", "residual") and not isinstance(why.exact, str):
        score, codes = why.exact
        result = rows.exactly(score, codes, of, why.names)
        if of == "score" or _same_gap(rows, result, of):
            return result
    if of == "score" and not explicit:
        return None
    if of != "decision" and of not in _RATES and rows.each("score") is None:
        return None
    return rows.by_walks(why.context, of, why.columns, why.players, why.chosen.calls)


def _same_gap(pair: Pair, division: Divided, of: str) -> bool:
    """Tell whether the sum before the link is what is predicted: then predictions divide as it does."""
    f, y = pair.each("score"), pair.each("outcome")
    if f is None:
        return False
    values = f if of == "prediction" or y is None else (y[0] - f[0], y[1] - f[1])
    gap, _, _ = pair.gap(values, None)
    return abs(gap - division.gap) <= 1e-4 * max(float(np.ptp(np.concatenate(values))), 1e-12)


def _too_few(why: Why, pair: Pair, of: str) -> Finding:
    sizes = ", ".join(
        f"{name} has {len(rows)}" for name, rows in zip((pair.group, pair.reference), pair.rows, strict=True)
    )
    reason = f"a gap is divided between groups of at least {FEWEST} rows: {sizes}"
    return finding_of(
        why, pair, "attribution", None, parameters=parameters_of(pair, of=of), groups=group_values(pair, None),
        notes=(f"Not divided: {reason}.",), inconclusive=reason,
    )  # fmt: skip


def _attribution(why: Why, pair: Pair, division: Divided | Finding) -> Finding:
    """Return a divided gap as a finding: the columns by the size of their part."""
    if isinstance(division, Finding):
        return division
    confidence = why.context.confidence
    each = 1 - (1 - confidence) / len(division.values)
    halves = division.sure.half_width(each)
    order = np.lexsort((np.arange(len(division.values)), -np.abs(division.values)))
    columns = []
    for index in order.tolist():
        value, half = float(division.values[index]), float(halves[index])
        unseen = division.sure.reach[index] == 0 and division.sampled is None
        interval = None if unseen else [value - half, value + half]
        columns.append({"column": division.players[index], "value": value, "interval": interval})
    evidence: dict[str, Any] = {"columns": columns}
    if division.sampled is None:
        evidence["method"] = "exact"
        notes = [EXACT]
    else:
        evidence |= {"method": "sampled", **division.sampled}
        notes = [
            f"Sampled: {division.sampled['walks']:,} walks, {division.sampled['calls']:,} rows asked; sampling is "
            f"{division.sampled['sampling_share']:.0%} of the intervals' variance."
        ]
    unread = [column["column"] for column in columns if column["interval"] is None]
    if unread:
        notes.append(f"Not seen to change the score of any row: {', '.join(unread)}.")
    notes.append(f"The columns' intervals hold at once, each at {each:.2%}.")
    rows = pair.only(_RATES[division.of]) if division.of in _RATES else pair
    return finding_of(
        why, pair, "attribution", division.gap, parameters=parameters_of(pair, of=division.of), evidence=evidence,
        groups=group_values(rows, division.means), notes=(*notes, ABOUT),
        interval_at=division.noise.around(division.gap),
    )  # fmt: skip


def _parts(why: Why, pair: Pair) -> list[Finding]:
    """Return the parts of the rates: of decisions with known outcomes."""
    decision, outcome = pair.each("decision"), pair.each("outcome")
    if decision is None or outcome is None or why.context.scorer.task == "regression":
        return []
    clusters, totals = pair.each("clusters"), pair.totals
    counted = totals is not None and clusters is None
    if counted:
        cells = [Cells(total[:4] * total[4] / total[5]) for total in totals or ()]
    else:
        cells = [cells_of(y, d, w) for y, d, w in zip(outcome, decision, pair.weights, strict=True)]
    both = cells[0], cells[1]
    design = [1.0] * 3 if clusters is None else design_effects(outcome, decision, pair.weights, clusters, both)
    parts = parts_of(both, design)
    if not np.isfinite(parts.values).all():
        return []
    evidence: dict[str, Any] = {
        "counts_group": both[0].counts.tolist(),
        "counts_reference": both[1].counts.tolist(),
        "design_effects": list(design),
        "gap": float(parts.values.sum()),
    }
    error = label_error(both, why.context.confidence)
    made = []
    for index, name in enumerate(NAMES):
        record = dict(evidence)
        notes = ["From the totals of both groups alone; the three parts add up to the gap."]
        if index == 0 and error is not None:
            record["label_error"] = error
            whose = pair.group if error["of"] == "group" else pair.reference
            notes.append(
                f"If {error['share']:.0%} of the positives of group {whose} were recorded as negative, base rates "
                "would be equal, and this part 0."
            )

        def at(level: float, place: int = index) -> Interval:
            return parts.interval(place, level)

        made.append(
            finding_of(
                why,
                pair,
                name,
                float(parts.values[index]),
                parameters=parameters_of(pair),
                evidence=record,
                groups=group_values(pair, None, counted=counted),
                notes=tuple(notes),
                interval_at=at,
                counted=counted,
            )
        )
    return made


def _unexplained(why: Why, pair: Pair) -> list[Finding]:
    """Return the finding on the gap in decisions or numbers that allowed columns leave unexplained."""
    outcome = pair.each("score" if why.context.scorer.task == "regression" else "decision")
    if outcome is None or min(map(len, pair.rows)) < FEWEST:
        return []
    names = allowed_columns(why.chosen, why.context)
    rows = np.concatenate(pair.rows)
    mine, every = np.arange(len(rows)) < len(pair.rows[0]), np.concatenate(outcome)
    comparison = Comparison.of([(why.people, rows, every)], mine, names, (pair.group, pair.reference))
    return [_left_finding(why, pair, names, unexplained(comparison), pair.gap(outcome, 1.0)[0])]


def _left_finding(why: Why, pair: Pair, names: Sequence[str], remainder: Any, gap: float) -> Finding:
    confidence, mine = why.context.confidence, remainder.toward_group
    column, area = remainder.separating
    evidence: dict[str, Any] = {
        "gap": gap,
        "learners": remainder.learners,
        "separating": {"column": column, "area_under_curve": area},
        "without_counterpart": mine.far,
        "effective_rows": mine.effective,
        "refused": mine.refused,
    }
    notes = [f"That differences in {', '.join(names)} are allowed is the claim of whoever asked, and is not checked."]
    if mine.refused is not None:
        notes.append(f"Not printed: {mine.refused}. {column} separates the groups best.")
        return finding_of(
            why, pair, "unexplained_difference", None, parameters=parameters_of(pair), within=tuple(names),
            evidence=evidence, notes=tuple(notes), inconclusive=mine.refused, better="lower",
        )  # fmt: skip
    evidence["explained"] = gap - mine.value
    evidence["left"] = {
        **_version("group", mine, confidence),
        **_version("reference", remainder.toward_reference, confidence),
        **_version("overlap", remainder.overlap, confidence),
    }
    notes.append(
        f"Of the gap {gap:.3f} between group {pair.group} and {pair.reference} {mine.value:.3f} is left between "
        f"people who are alike in {', '.join(names)}. The value is its size, whichever group is ahead."
    )
    return finding_of(
        why, pair, "unexplained_difference", abs(mine.value), parameters=parameters_of(pair), within=tuple(names),
        evidence=evidence, notes=tuple(notes), better="lower", interval_at=lambda level: folded(mine.interval(level)),
    )  # fmt: skip


def folded(interval: Interval) -> Interval:
    """Return the interval of a number's size."""
    low, high = interval
    return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _version(name: str, left: Left, confidence: float) -> dict[str, Any]:
    """Return one version of what is left; without numbers where it is refused."""
    if left.refused is not None:
        return {name: None, f"{name}_low": None, f"{name}_high": None, f"{name}_refused": left.refused}
    low, high = left.interval(confidence)
    return {name: left.value, f"{name}_low": low, f"{name}_high": high, f"{name}_refused": None}


# After a removal: a model with the other group's values of a column, and training again without the column.


LEARNER = "lightgbm"
ABOUT_REMOVAL = (
    "Trained again, with and without, by fairkit's own boosted trees on one training table: another learner, or other "
    "training rows, may say otherwise."
)
AUDITED = "The training table is the audited one: on the rows of its training a model may have learned gaps by heart."


def refitted(why: Why, pair: Pair, divided: Sequence[Divided | Finding]) -> list[Finding]:
    """Return the gap after training again without each column that was named, or that carries the most."""
    columns = list(why.chosen.without)
    first = next((divided_once for divided_once in divided if isinstance(divided_once, Divided)), None)
    if not columns and first is not None:
        columns = [first.players[int(np.argmax(np.abs(first.values)))]]
    training, audited = _training(why)
    columns_of = dict(zip(why.names, why.players, strict=True))
    findings = []
    for name in columns:
        if name not in columns_of:
            raise ParameterError(f"why.without: {name!r} is no column of the model; it reads: {', '.join(columns_of)}")
        findings.append(_without(why, pair, name, columns_of[name], training, (AUDITED,) * audited))
    return findings


def _training(why: Why) -> tuple[Table, bool]:
    """Read the table to train on, with the roles of the audit, and tell whether it is the audited table."""
    from fairkit.data.loading import load_data
    from fairkit.data.table import Table

    roles, columns = why.context.dataset.roles, why.context.scorer.columns
    data = load_data(
        str(why.chosen.refit),
        label=roles.label,
        favorable=roles.favorable,
        sensitive=[split.text for split in roles.sensitive],
        features=list(columns),
        weights=roles.weights,
    )
    if roles.label is None:
        raise DataError("why.refit: training needs the outcome column; name it with `label`")
    several = isinstance(why.context.scorer, OneClass)
    table = Table.from_dataset(data, "multiclass" if several else why.context.scorer.task)
    return table, data.sha256 == why.context.dataset.sha256


def _said(why: Why, table: Table, left_out: Sequence[str], rows: Table | None = None) -> Array:
    """Train without some columns, and return what the model says about the audit's rows."""
    import dataclasses

    from fairkit_repair.learners import fit_learner

    features = tuple(name for name in table.features if name not in left_out)
    if not features:
        raise ParameterError("why.without: nothing is left to train on")
    table = table if rows is None else rows
    columns = {name: table.columns[name] for name in features}
    model = fit_learner(LEARNER, dataclasses.replace(table, columns=columns, features=features), Run(seed=0, threads=1))
    said = model.predict({name: why.columns[name] for name in features})
    if table.task == "multiclass":
        names = [value_text(value) for value in table.classes]
        favorable = value_text(why.context.dataset.roles.favorable)
        return np.asarray(said.score.argmax(axis=1) == names.index(favorable), dtype=float)
    return np.asarray(said.score if said.decision_probability is None else said.decision_probability, dtype=float)


def _without(
    why: Why, pair: Pair, name: str, columns: Sequence[str], training: Table, notes: tuple[str, ...]
) -> Finding:
    with_columns, gone = _said(why, training, ()), _said(why, training, columns)
    changes = []
    rng = why.context.rng("why refit")
    for _ in range(why.chosen.refits if why.chosen.refits > 1 else 0):
        rows = training.take(rng.integers(0, len(training), len(training)))
        moved = _said(why, training, columns, rows) - _said(why, training, (), rows)
        changes.append(_gap(pair, moved, 0.0)[0])
    extra = float(np.var(changes, ddof=1)) if changes else 0.0
    gap, means, noise = _gap(pair, gone, extra)
    change, _, spread = _gap(pair, gone - with_columns, extra)

    most = np.inf if why.context.scorer.task == "regression" else 1.0
    gap = float(np.clip(gap, -most, most))
    evidence: dict[str, Any] = {
        "with": _gap(pair, with_columns, 0.0)[0],
        "change": change,
        "change_interval": list(spread.around(change)(why.context.confidence)),
        **_computed(why, pair, name),
        "training_rows": len(training),
        "refits": why.chosen.refits,
        "refit_deviation": extra**0.5 if changes else None,
    }
    compared = f"The gap of models trained with {name}: {evidence['with']:.3f}, and without: {gap:.3f}."
    about = () if changes else ("The interval is of the rows of the audit, for this training set.",)
    return finding_of(
        why, pair, "gap_without", gap, parameters=parameters_of(pair, without=name), evidence=evidence,
        groups=group_values(pair, means), notes=(compared, ABOUT_REMOVAL, *about, *notes),
        interval_at=noise.around(gap, most),
    )  # fmt: skip


def _gap(pair: Pair, values: Array, extra: float) -> tuple[float, tuple[float, float], Noise]:
    """Return the difference of both groups' means, with the variance of the training added."""
    both = values[pair.rows[0]], values[pair.rows[1]]
    gap, means, noise = pair.gap(both, 1.0)
    return gap, means, Noise(noise.variance + extra, noise.degrees, noise.reach, noise.rows)


def _computed(why: Why, pair: Pair, name: str) -> dict[str, Any]:
    """Return the gap that this model would show with the other group's values of a column, for either group.

    Each row gets the value of one random row of the other group: v(N) - v(N∖j), and v({j}) - v(∅).
    """
    kind = "score" if why.context.scorer.task == "regression" else "decision"
    f = pair.each(kind)
    assert f is not None  # noqa: S101 -- a model gives one of both
    sizes = [min(len(rows), VARIANCE_ROWS) for rows in pair.rows]
    every = np.concatenate([rows[:size] for rows, size in zip(pair.rows, sizes, strict=True)])
    columns = {column: values[every] for column, values in why.columns.items()}
    predictions = np.concatenate([f[0][: sizes[0]], f[1][: sizes[1]]])
    asks = asks_of(why.context.scorer, kind, columns, why.players, predictions)
    player, rng = why.names.index(name), pair.seed(why.context.scorer.info.name, f"without {name}")
    record: dict[str, Any] = {}
    for mine, label in ((0, "group"), (1, "reference")):
        rows_of_group = np.arange(sizes[mine]) + (0 if mine == 0 else sizes[0])
        others = rng.integers(0, sizes[1 - mine], sizes[mine]) + (sizes[0] if mine == 0 else 0)
        from_own = np.ones((len(rows_of_group), len(why.players)), dtype=np.bool_)
        from_own[:, player] = False
        change = (asks.mixed(rows_of_group, others, from_own) - predictions[rows_of_group]) * (
            1.0 if mine == 0 else -1.0
        )
        w = pair.weights[mine]
        part = shares(None if w is None else w[: sizes[mine]], sizes[mine])
        moved = float(part @ change)
        noise = Noise(part**2 @ (change - moved)[:, None] ** 2, np.array([sizes[mine] - 1.0]), np.ones(1), pair.sizes)
        low, high = noise.around(moved)(why.context.confidence)
        record[f"computed_{label}"] = {"change": moved, "low": low, "high": high}
    return record


# One audit's gaps: the rows, the groups that are compared, and the form of a finding about two of them.


@dataclass(frozen=True, eq=False)
class Why:
    """One audit's gaps."""

    chosen: Parameters  # what was set
    context: AuditContext  # the model and the table
    people: People  # all rows

    @cached_property
    def recorded(self) -> bool:
        """Whether the predictions are columns of the table, and no model can be asked."""
        return bool(getattr(self.context.scorer, "recorded", False))

    @cached_property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The model's columns."""
        return {name: self.people.column(name) for name in self.context.scorer.columns}

    @cached_property
    def players(self) -> list[tuple[str, ...]]:
        """The columns of every player."""
        return players_of(self.chosen, self.context.scorer.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the players."""
        return tuple("+".join(names) for names in self.players)

    @cached_property
    def exact(self) -> tuple[ExactScore, Any] | str:
        """The score whose attribution is exact, and all rows as it wants them; else why there is none."""
        score = read_exact(self.context.scorer, self.columns, self.players)
        return score if isinstance(score, str) else (score, score.prepare(self.columns))

    def pairs(self) -> list[Pair]:
        """Return every group against its reference, by sensitive column."""
        pairs = []
        every = dict(self.context.dataset.profile.groups)
        if self.chosen.people:
            every[PEOPLE] = dict.fromkeys((in_words(conditions_of(self.chosen)), "everybody else"), 0)
        for name, groups in every.items():
            codes, names = self.people.groups[name], list(groups)
            rows = [np.flatnonzero(codes == index) for index in range(len(names))]
            there = [index for index in range(len(names)) if len(rows[index])]
            if len(there) < 2:
                continue
            reference = self._reference(name, names, rows, there)
            pairs += [
                Pair(self.people, name, names[index], names[reference], (rows[index], rows[reference]), len(there) == 2)
                for index in there
                if index != reference
            ]
        return pairs

    def _reference(self, sensitive: str, names: list[str], rows: list[NDArray[np.int64]], there: list[int]) -> int:
        """Return the reference: the one that was named; else of two groups the lower one, of more the largest."""
        columns = list(self.context.dataset.profile.groups)
        stated = dict(reference_of(text, columns) for text in self.context.dataset.roles.reference).get(sensitive)
        if sensitive == PEOPLE:
            return 1
        f = self.people.number("decision") if self.context.scorer.task != "regression" else None
        f = self.people.number("score") if f is None else f
        means = {} if f is None else {code: self._mean(f, rows[code]) for code in there}
        if stated == LARGEST or (stated is None and (len(there) > 2 or not means)):
            totals = self.people.totals.get(sensitive)
            return max(there, key=lambda code: len(rows[code]) if totals is None else totals[code, 6])
        if stated == HIGHEST:
            return max(means, key=means.__getitem__)
        if stated is None:
            return min(means, key=means.__getitem__)
        return names.index(stated)

    def _mean(self, values: Array, rows: NDArray[np.int64]) -> float:
        weights = self.people.weights
        return float(shares(None if weights is None else weights[rows], len(rows)) @ values[rows])


def parameters_of(pair: Pair, **more: Any) -> dict[str, Any]:
    """Return the finding's parameters: of several groups, the one that is compared; and of several classes."""
    more |= {} if pair.people.label is None else {"class": pair.people.label}
    return more if pair.alone and pair.sensitive != PEOPLE else {**more, "group": pair.group}


def group_values(pair: Pair, means: tuple[float, float] | None, *, counted: bool = False) -> tuple[GroupValue, ...]:
    """Return both groups with their means, and how many rows of each were taken, or were counted."""
    means_shown = (None, None) if means is None else means
    sizes = map(len, pair.rows) if not counted or pair.totals is None else (int(total[6]) for total in pair.totals)
    return tuple(
        GroupValue(group=name, rows=rows, value=value)
        for name, rows, value in zip((pair.group, pair.reference), sizes, means_shown, strict=True)
    )


def finding_of(
    why: Why, pair: Pair, metric: str, value: float | None, *, counted: bool = False, **more: Any
) -> Finding:
    """Return a finding between a group and its reference; one that was not counted on all rows says so first."""
    at: Callable[[float], Interval] | None = more.get("interval_at")
    if not counted and pair.totals is not None:
        sizes = [
            f"{taken.rows:,} of {every.rows:,} people of group {every.group}"
            for taken, every in zip(group_values(pair, None), group_values(pair, None, counted=True), strict=True)
        ]
        more["notes"] = (f"On a sample, drawn at random: {' and '.join(sizes)}.", *more["notes"])
        more["evidence"] = {**more.get("evidence", {}), "sample": True}
    confidence = why.context.confidence
    return Finding(
        auditor="why",
        metric=metric,
        sensitive=pair.sensitive or None,
        value=value,
        interval=None if at is None or value is None else at(confidence),
        confidence=confidence,
        reference=pair.reference if pair.sensitive else None,
        **more,
    )
