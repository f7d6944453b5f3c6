"""Rows to label: drawn by group and decision, so that anybody can repeat it, in one stage or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.auditing.prepare import prepared
from fairkit.data.labelled import SCHEMA, Drawn, drawn_cells, population_digest
from fairkit.data.profile import total_here
from fairkit.errors import DataError, ParameterError
from fairkit.few_labels import LabelTotals, difference_between, few_label_estimate, label_totals
from fairkit.planning.run import allocate, check_rules, installed, rule_rate
from fairkit.settings import ModelOptions
from fairkit.support.lazy_dataclass import dataclass, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset

    Counts = NDArray[np.int64]


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


def draw_labels(data: Dataset, budget: int, rules: Sequence[str], *, seed: int = 0) -> LabelPlan:
    """Return the rows to label: the first stage, or the second where the data names a drawn list of the first.

    `data`: a table with one sensitive column and predictions; with ``labelled`` of the first stage and
    its outcomes, the second stage; `budget`: labels of both stages; `rules`: names of the disparities that the labels
    are for; `seed`: of the draw, published before the outcomes are known; the second stage keeps the first one's.
    """
    check_rules(rules, budget)
    names = [split.name for split in data.roles.sensitive]
    if len(names) != 1:
        raise ParameterError(
            f"rows are drawn inside the groups of one sensitive column, and the data names {len(names)}; name one, "
            "or an intersection (sex+race)"
        )
    pairs, yes, has_label = decided_pairs(data)
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
        seen = mask & has_label
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
    data.learn()
    data = data.with_roles(replace(data.roles, labelled=None))
    (subject,) = prepared([model], data, total_here)
    scorer = subject.bind(data, ModelOptions())
    if scorer.task != "binary":
        raise ParameterError(f"rows to label are drawn for decisions of yes or no; this is a {scorer.task} task")
    size = data.profile.rows + data.profile.dropped_rows
    pairs, yes, has_label = np.full(size, -1), np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    for batch in data.batches(scorer.columns, partial=True):
        decision = scorer.predict(batch.columns(scorer.columns)).decision
        if decision is None or not ((decision == 0) | (decision == 1)).all():
            raise ParameterError("rows to label are drawn by group and decision: these decisions are not 0 or 1")
        codes = batch.groups[name]
        pairs[batch.rows] = np.where(codes < 0, -1, 2 * codes + decision.astype(np.int64))
        if batch.favorable is not None:
            seen = np.ones(len(batch), dtype=bool) if batch.labelled is None else batch.labelled
            yes[batch.rows], has_label[batch.rows] = batch.favorable & seen, seen
    return pairs, yes, has_label


def redrawn(data: Dataset, model: Any = None) -> Dataset:
    """Return data whose list of drawn rows has their number alone with the rows themselves, drawn again."""
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


def exploration(data: Dataset, rule: str) -> list[tuple[int, float]]:
    """Return the width of a rate's difference between groups where outcomes of so many refused of each group are seen.

    Outcomes of the selected stay as they are. The widest over several shares of favorable outcomes among the refused,
    from a fifth of the selected ones' in their group up to the same.
    """
    check_rules([rule], 1)
    metric = next(metric for metric in installed() if metric.name == rule_rate(rule))()
    pairs, yes, has_label = decided_pairs(data)
    groups = len(data.group_names(data.roles.sensitive[0].name))
    some = pairs >= 0
    group, decision = pairs[some] // 2, (pairs[some] % 2).astype(float)
    base = label_totals(group, groups, decision, yes[some].astype(float), has_label[some] & (decision > 0))
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
            spread = difference_between(made, 0.95)
            widest = max(widest, spread.high - spread.low)
        widths.append((count, widest))
    return widths
