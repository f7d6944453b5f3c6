"""Whom to label: how many rows of each group and decision, and the draw that anybody can repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import ParameterError, PolicyError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

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

    `rows`: of each group and decision (0, 1), shape [G, 2]; `budget`: labels of both stages; `rules`: names of the
    disparities that the labels are for; of several the largest normalised wants are met; `labels`, `favorable`: of the
    first stage: its labels, and those with the favorable outcome; None in the first stage; `asked`: the rows that the
    first stage drew, where some of them have no outcome; None: `labels`.
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

    `totals`: by (group, decision 0 or 1): the rows, and in the second stage labels and favorable ones among them, too:
    ``{("female", 0): (3316, 100, 31), ...}``; `budget`: labels of both stages; `metric`: the disparity, or several,
    that the labels are for, as ``equal_opportunity_difference``; returns new labels by (group, decision): of the first
    stage, 40 % of the budget equally, where totals have rows alone.
    """
    rules = [metric] if isinstance(metric, str) else list(metric)
    check_rules(rules, budget)
    groups = list(dict.fromkeys(group for group, _ in totals))
    size = max((len(counts) for counts in totals.values()), default=0)
    if size not in (1, 3) or any(len(counts) != size for counts in totals.values()):
        raise ParameterError("`totals` has rows, or rows, labels and favorable labels, of each group and decision")
    table = np.array([[list(totals.get((group, d), [0] * size)) for d in (0, 1)] for group in groups])
    later = () if size == 1 else (table[..., 1], table[..., 2])
    made = allocate(table[..., 0], budget, rules, *later)
    return {(group, d): int(made[g, d]) for g, group in enumerate(groups) for d in (0, 1) if (group, d) in totals}


def check_rules(rules: Sequence[str], budget: int) -> None:
    """Refuse rules that labels are not planned for."""
    if budget < 1:
        raise ParameterError(f"labels={budget} is not a number of rows: 1 or more")
    for rule in rules:
        if rule_rate(rule) not in KNOWN:
            known = [f"{name}_difference" for name in KNOWN]
            raise PolicyError(
                f"rows to label are not drawn for {rule!r}; it is a difference or ratio of a rate that needs outcomes. "
                f"{did_you_mean(rule, known, what='metrics')}"
            )
