"""Whom to label: how many rows of each group and decision, and the draw that anybody can repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.labelled import SCHEMA, Drawn, drawn_cells, population_digest
from fairkit.errors import DataError, ParameterError, PolicyError, did_you_mean
from fairkit.limits.few_labels import LabelTotals, difference_between, few_label_estimate, label_totals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset

    Array = NDArray[np.float64]
    Counts = NDArray[np.int64]

FIRST = 0.4
"""The share of the budget that the first stage spends, equally over groups and decisions."""

_EQUALLY = 0.1  # of the second stage


def allocate(
    rows: Counts,
    budget: int,
    rules: Sequence[str],
    labels: Counts | None = None,
    favorable: Counts | None = None,
    asked: Counts | None = None,
) -> Counts:
    """Return how many rows of each group × decision a stage labels, shape [G, 2].

    The first stage takes `FIRST` of the budget equally. The second takes the rest by Neyman (1934), a tenth of it
    equally: labels of (g, d) ∝ N |c| sd, with c the derivative of the rule's rate in the cell's sum of outcomes.

    Parameters
    ----------
    rows
        Of each group and decision (0, 1), shape [G, 2].
    budget
        Labels of both stages.
    rules
        Names of the disparities that the labels are for; of several the largest normalised wants are met.
    labels, favorable
        Of the first stage: its labels, and those with the favorable outcome; None in the first stage.
    asked
        The rows that the first stage drew, where some of them have no outcome; None: `labels`.
    """
    first = round(FIRST * budget)
    if labels is None or favorable is None:
        return _spread(np.ones(rows.shape), rows, first)
    share = (favorable + 1) / (labels + 2)
    wants = np.max([_wants(rule, rows, share) for rule in rules], axis=0)
    asked = labels if asked is None else asked
    rest, free = budget - int(asked.sum()), rows - asked
    equally = _spread(np.ones(rows.shape), free, round(_EQUALLY * rest))
    return equally + _spread(wants, free - equally, rest - int(equally.sum()))


def _wants(rule: str, rows: Counts, share: Array) -> Array:
    """Return N |c| sd of each cell for one rule, scaled to sum 1."""
    n = rows.astype(np.float64)
    sd = np.sqrt(share * (1 - share))
    stem = rule_rate(rule)
    if stem == "false_positive_rate":
        share = 1 - share
    yes = n * share
    positives = np.maximum(yes.sum(axis=1, keepdims=True), 1e-9)
    if stem in ("true_positive_rate", "false_positive_rate"):
        rate = yes[:, 1:] / positives
        # TPR: (1 - T) / P for d = 1, T / P for d = 0
        slope = np.concatenate([rate, 1 - rate], axis=1) / positives
    elif stem == "precision":
        slope = np.stack([np.zeros(len(n)), 1 / np.maximum(n[:, 1], 1)], axis=1)
    elif stem == "f1_score":
        whole = n[:, 1:] + yes[:, :1]
        slope = np.concatenate([yes[:, 1:] / whole**2, 1 / whole], axis=1)
    else:
        slope = np.repeat(1 / np.maximum(n.sum(axis=1, keepdims=True), 1), 2, axis=1)
    wants = n * slope * sd
    return np.asarray(wants / max(wants.sum(), 1e-300))


_RATES = {
    "equal_opportunity": ("true_positive_rate",), "false_negative_rate": ("true_positive_rate",),
    "predictive_equality": ("false_positive_rate",), "true_negative_rate": ("false_positive_rate",),
    "equalized_odds": ("true_positive_rate", "false_positive_rate"),
    "gap_max": ("true_positive_rate", "false_positive_rate"), "gap_rms": ("true_positive_rate", "false_positive_rate"),
}  # fmt: skip
KNOWN = ("true_positive_rate", "false_positive_rate", "accuracy", "precision", "f1_score", *_RATES)


def rule_rate(rule: str) -> str:
    """Return the rate that a disparity is about: ``true_positive_rate`` of ``equal_opportunity_difference``."""
    for suffix in ("_difference", "_ratio", "_group_min", "_group_max"):
        rule = rule.removesuffix(suffix)
    return _RATES.get(rule, (rule,))[0]


def _spread(wants: Array, free: Counts, budget: int) -> Counts:
    """Share whole labels out in proportion to the wants, no cell more than it has; what is left goes round again."""
    given = np.zeros(free.shape, dtype=np.int64)
    budget = min(budget, int(free.sum()))
    while (left := budget - int(given.sum())) > 0:
        open_ = given < free
        part = np.where(open_, np.maximum(wants, 1e-12), 0.0)
        exact = left * part / part.sum()
        more = np.minimum(np.floor(exact).astype(np.int64), free - given)
        if not more.any():  # the largest remainders, one label each
            for place in np.argsort(-(exact - np.floor(exact)) * open_ - 1e-9 * open_, axis=None, kind="stable")[:left]:
                more.flat[place] = min(1, free.flat[place] - given.flat[place])
        given += more
    return given


def plan_labels(
    totals: Mapping[tuple[str, int], Sequence[int]], budget: int, metric: str | Sequence[str]
) -> dict[tuple[str, int], int]:
    """Return how many rows of each (group, decision) to label.

    Parameters
    ----------
    totals
        By (group, decision 0 or 1): the rows, and in the second stage labels and favorable ones among them, too:
        ``{("female", 0): (3316, 100, 31), ...}``.
    budget
        Labels of both stages.
    metric
        The disparity, or several, that the labels are for, as ``equal_opportunity_difference``.

    Returns
    -------
    dict
        New labels by (group, decision): of the first stage, 40 % of the budget equally, where totals have rows alone.
    """
    rules = [metric] if isinstance(metric, str) else list(metric)
    _check(rules, budget)
    groups = list(dict.fromkeys(group for group, _ in totals))
    size = max((len(counts) for counts in totals.values()), default=0)
    if size not in (1, 3) or any(len(counts) != size for counts in totals.values()):
        raise ParameterError("`totals` has rows, or rows, labels and favorable labels, of each group and decision")
    table = np.array([[list(totals.get((group, d), [0] * size)) for d in (0, 1)] for group in groups])
    later = () if size == 1 else (table[..., 1], table[..., 2])
    made = allocate(table[..., 0], budget, rules, *later)
    return {(group, d): int(made[g, d]) for g, group in enumerate(groups) for d in (0, 1) if (group, d) in totals}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlan:
    """The rows whose outcome is to be looked up: those of a stage, and the design of all stages so far."""

    stage: int
    rows: tuple[int, ...]  # to label now, numbers in the table from 0, in order
    counts: Mapping[tuple[str, int], int]  # of them, by group and decision
    design: Mapping[str, Any]  # what `fairkit.Drawn` takes

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        cells = [{"group": group, "decision": d, "labels": n} for (group, d), n in self.counts.items()]
        return {"stage": self.stage, "rows": list(self.rows), "cells": cells, "design": dict(self.design)}


def draw_labels(data: Dataset, budget: int, rules: Sequence[str], *, seed: int = 0, model: Any = None) -> LabelPlan:
    """Return the rows to label: the first stage, or the second where the data names a drawn list of the first.

    Parameters
    ----------
    data
        A table with one sensitive column and predictions (or a `model`); with ``labelled`` of the first stage and its
        outcomes, the second stage.
    budget
        Labels of both stages.
    rules
        Names of the disparities that the labels are for.
    seed
        Of the draw, published before the outcomes are known; the second stage keeps the first one's.
    model
        What decides; None: the predictions that the data names.

    Raises
    ------
    FairkitError
        The data has no decisions or not one sensitive column, or a rule is on no rate of decisions.
    """
    _check(rules, budget)
    names = [split.name for split in data.roles.sensitive]
    if len(names) != 1:
        raise ParameterError(
            f"rows are drawn inside the groups of one sensitive column, and the data names {len(names)}; name one, "
            "or an intersection (sex+race)"
        )
    pairs, yes, known = decided_pairs(data, model)
    groups = data.group_names(names[0])
    size = 2 * len(groups)
    rows = np.bincount(pairs[pairs >= 0], minlength=size).reshape(-1, 2)
    population = population_digest(groups, pairs)
    before = data.roles.labelled
    first = np.zeros_like(rows)
    stages: list[dict[str, Any]] = []
    labels = favorable = None
    if before is not None:
        if before.kind != "list":
            raise ParameterError("the second stage goes on from the list of the first: `labelled` names its file")
        told: Any = before.design
        seed, stages = int(told["seed"]), list(told["stages"])
        if told["population"] != population or len(stages) != 1:
            why = "has both stages already" if len(stages) != 1 else "is of other rows, groups or decisions"
            raise DataError(f"{data.name}: the drawn list {why}; give the list of the first stage on this table")
        mask = np.zeros(len(pairs), dtype=bool)
        mask[before.rows] = True
        first = np.bincount(pairs[mask], minlength=size).reshape(-1, 2)
        seen = mask & known
        if not seen.any():
            raise DataError(f"{data.name}: none of the {mask.sum():,} drawn rows of the first stage has an outcome")
        labels = np.bincount(pairs[seen], minlength=size).reshape(-1, 2)
        favorable = np.bincount(pairs[seen & yes], minlength=size).reshape(-1, 2)
    counts = allocate(rows, budget, rules, labels, favorable, asked=first)
    cells = drawn_cells(groups, pairs, first + counts, seed, population)
    old = set() if before is None else set(before.rows.tolist())
    now = sorted(row for cell in cells for row in cell["drawn"] if row not in old)
    stage = len(stages) + 1
    stages.append({"stage": stage, "labels": len(now)})
    design = {
        "schema": SCHEMA, "seed": seed, "population": population, "sensitive": names[0], "for": list(rules),
        "stages": stages, "cells": [{**cell, "drawn": sorted(cell["drawn"])} for cell in cells],
    }  # fmt: skip
    each = {(group, d): int(counts[g, d]) for g, group in enumerate(groups) for d in (0, 1)}
    return LabelPlan(stage=stage, rows=tuple(now), counts=each, design=design)


def decided_pairs(data: Dataset, model: Any = None) -> tuple[Counts, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return 2 * group + decision of every row (-1 without a group), and which have a favorable, or any, outcome."""
    drawn = data.roles.labelled
    name = data.roles.sensitive[0].name if drawn is None or drawn.sensitive is None else drawn.sensitive
    from fairkit.auditing.subject import prepared
    from fairkit.data.profile import total_here
    from fairkit.settings import ModelOptions

    data.learn()
    data = data.with_roles(replace(data.roles, labelled=None))
    (subject,) = prepared([model], data, total_here)
    scorer = subject.bind(data, ModelOptions())
    if scorer.task != "binary":
        raise ParameterError(f"rows to label are drawn for decisions of yes or no; this is a {scorer.task} task")
    size = data.profile.rows + data.profile.dropped_rows
    pairs, yes, known = np.full(size, -1), np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    for batch in data.batches(scorer.columns, partial=True):
        decision = scorer.predict(batch.columns(scorer.columns)).decision
        if decision is None or not ((decision == 0) | (decision == 1)).all():
            raise ParameterError("rows to label are drawn by group and decision: these decisions are not 0 or 1")
        codes = batch.groups[name]
        pairs[batch.rows] = np.where(codes < 0, -1, 2 * codes + decision.astype(np.int64))
        if batch.favorable is not None:
            seen = np.ones(len(batch), dtype=bool) if batch.labelled is None else batch.labelled
            yes[batch.rows], known[batch.rows] = batch.favorable & seen, seen
    return pairs, yes, known


def redrawn(data: Dataset, model: Any = None) -> Dataset:
    """Return data whose list of drawn rows has their number alone with the rows themselves, drawn again.

    Raises
    ------
    DataError
        The groups or decisions are not those that the rows were drawn from.
    """
    drawn = data.roles.labelled
    if drawn is None or not drawn.recorded:
        return data
    told: Any = drawn.design
    pairs, _, _ = decided_pairs(data, model)
    groups = data.group_names(str(drawn.sensitive))
    if told["population"] != population_digest(groups, pairs):
        raise DataError(
            f"{data.name}: the groups or decisions of these rows are not those that the rows to label were drawn from"
        )
    counts = np.zeros((len(groups), 2), dtype=np.int64)
    for cell in told["cells"]:
        counts[groups.index(cell["group"]), cell["decision"]] = cell["drawn"]
    cells = drawn_cells(groups, pairs, counts, told["seed"], told["population"])
    design = {**told, "cells": [{**cell, "drawn": sorted(cell["drawn"])} for cell in cells]}
    return data.with_roles(replace(data.roles, labelled=Drawn(design, drawn.refused)))


def exploration(data: Dataset, rule: str, confidence: float = 0.95, model: Any = None) -> list[tuple[int, float]]:
    """Return the width of a rate's difference between groups where outcomes of so many refused of each group are seen.

    Outcomes of the selected stay as they are. The widest over several shares of favorable outcomes among the refused,
    from a fifth of the selected ones' in their group up to the same.
    """
    from fairkit.planning.run import installed

    _check([rule], 1)
    metric = next(one for one in installed() if one.name == rule_rate(rule))()
    pairs, yes, known = decided_pairs(data, model)
    groups = len(data.group_names(data.roles.sensitive[0].name))
    some = pairs >= 0
    group, decision = pairs[some] // 2, (pairs[some] % 2).astype(float)
    base = label_totals(group, groups, decision, yes[some].astype(float), known[some] & (decision > 0))
    refused = base.pairs(0)[:, 0]
    selected = base.pairs(2)[:, 1] / np.maximum(base.pairs(1)[:, 1], 1)
    widths = []
    for count in (0, 10, 25, 50, 100, 200, 400):
        if count > refused.min():
            break
        widest = 0.0
        for part in (0.2, 0.5, 0.8, 1.0) if count else (0.0,):
            sums = base.sums.copy()
            sums[:, 0, 0, 1] = sums[:, 0, 0, 3] = count
            sums[:, 0, 0, 2] = np.round(count * part * selected)
            made = few_label_estimate(metric, LabelTotals(sums), None, np.zeros(groups, dtype=bool))
            spread = difference_between(made, confidence)
            widest = max(widest, spread.high - spread.low)
        widths.append((count, widest))
    return widths


def _check(rules: Sequence[str], budget: int) -> None:
    if budget < 1:
        raise ParameterError(f"labels={budget} is not a number of rows: 1 or more")
    for rule in rules:
        if rule_rate(rule) not in KNOWN:
            known = [f"{name}_difference" for name in KNOWN]
            raise PolicyError(
                f"rows to label are not drawn for {rule!r}; it is a difference or ratio of a rate that needs outcomes. "
                f"{did_you_mean(rule, known, what='metrics')}"
            )
