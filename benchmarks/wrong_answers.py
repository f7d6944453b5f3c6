"""Confident wrong answers that audits gave before: each setting again, as coverage and false pass.

    python benchmarks/wrong_answers.py [--draws 300] [--only NAME]

Every draw is a new sample of a population whose disparity is known, judged by a rule that it breaks: a pass is wrong.
Coverage is the share of intervals that hold the truth (where rows lack a group or an outcome, together with the bounds
on what those could do); it should be at least .93, false pass at most .03. The disparities of one metric are measured
from the totals of the auditor, as an audit does it.
"""

from __future__ import annotations

import argparse
import functools
import operator

import numpy as np
from scipy.stats import norm

import fairkit
from fairkit import plugins
from fairkit.auditing.needs import check_conditions
from fairkit.auditors import AuditContext
from fairkit.models.columns import PredictedColumns
from fairkit.parameters import parse_parameters
from fairkit.results.policy import judge
from fairkit.settings import ModelOptions

SEX = np.array(["f", "m"], dtype=object)
DECISION, SCORE = PredictedColumns(decision="decision"), PredictedColumns(score="s")


def audited(columns, model, rule, metric=None, *, auditor="group", told=None, task=None, **roles):
    """Return the finding that a rule is about and its verdict."""
    data = fairkit.load_data(columns, **{"sensitive": ["sex"], **roles})
    scorer = model.bind(data, ModelOptions(task=task))
    cls, plugin = plugins.find_auditor(auditor)
    metrics = [one for one in plugin.metrics if metric is None or one.name == metric]
    one = cls(parse_parameters(cls.Parameters, told or {}, owner=auditor))
    context = AuditContext(dataset=data, scorer=scorer, metrics=metrics)
    data.learn()
    check_conditions([one], data)
    one.begin(context)
    wanted = [*scorer.columns, *one.columns(context)]
    batches = data.batches(wanted, partial=True)
    parts = [one.measure(batch, scorer.predict(batch.columns(scorer.columns)), context) for batch in batches]
    found = one.findings(functools.reduce(operator.add, parts), context)
    result = judge([rule], found)[0][0]
    chosen = [f for f in found if f.metric == rule.metric and f.within == rule.within]
    return next((f for f in chosen if f.reference), chosen[0]), result.verdict


def reach(finding):
    """Return the interval, as far from the bounds as from the value."""
    low, high = finding.interval
    bounds = finding.evidence.get("missing_bounds", {})
    if bounds and "low" not in bounds:
        return -np.inf, np.inf
    down, up = bounds.get("low", finding.value), bounds.get("high", finding.value)
    return low - (finding.value - down), high + (up - finding.value)


def people(rng, n, first, second, *, spread=0.0):
    """Return sex, a department and decisions with rates that differ."""
    man, dept = rng.integers(0, 2, n), rng.integers(0, 3, n)
    rate = np.where(man == 1, second, first) + spread * (dept - 1)
    return man, dept, (rng.random(n) < rate).astype(int)


def few_without_group(rng, n=20_000, gap=0.055):
    """1.9 % of the rows have no group: selected men."""
    man, dept, decision = people(rng, n, 0.5 - gap / 2, 0.5 + gap / 2, spread=0.1)
    sex = SEX[man]
    sex[rng.permutation(np.flatnonzero((man == 1) & (decision == 1)))[: int(0.019 * n)]] = None
    return {"sex": sex, "dept": dept.astype(str), "decision": decision}


def labels(rng, metric, truth):
    """The label is missing for 64 % of one group's refused, those with a good outcome first."""
    man, _, decision = people(rng, 4_000, 0.25, 0.50)
    good = rng.random(4_000) < np.where(decision == 1, 0.8, 0.3)
    label = np.where(good, "good", "bad").astype(object)
    label[(man == 0) & (decision == 0) & (rng.random(4_000) < np.where(good, 0.9, 0.53))] = None
    columns = {"sex": SEX[man], "decision": decision, "y": label}
    limit = 0.1 if metric == "selection_rate" else truth - 0.05
    rule = fairkit.Rule(f"{metric}_difference", sensitive="sex", max=limit)
    return truth, audited(columns, DECISION, rule, metric, label="y", favorable="good")


def without_group(rng, truth, limit, **roles):
    """Rows without a group: inside departments, or the ratio to the men's rate."""
    rule = fairkit.Rule("impact_ratio", sensitive="sex", min=limit)
    if "within" in roles:
        rule = fairkit.Rule("demographic_parity_difference", sensitive="sex", within=("dept",), max=limit)
    return truth, audited(few_without_group(rng), DECISION, rule, "selection_rate", **roles)


def ranking(rng):
    """Rows without a group, in rankings of ten."""
    man = rng.integers(0, 2, 4_000)
    score = rng.standard_normal(4_000) + 0.25 * man
    sex = SEX[man]
    sex[np.flatnonzero((man == 1) & (score > 1.7))[:76]] = None
    columns = {"sex": sex, "q": np.repeat(np.arange(400), 10), "s": score}
    rule = fairkit.Rule("exposure_difference", sensitive="sex", max=0.04)
    data = fairkit.load_data(columns, sensitive="sex", query="q", predictions={"prediction": "s"})
    report = fairkit.audit(None, data, policy=[rule])
    return np.nan, (report.find(rule.metric, "sex"), report.verdict)


def probable(rng, error, known):
    """Groups that are certain to .88 where .98 is said; rates of .5 and .3."""
    sure = rng.random(6_000) < 0.5
    group = rng.random(6_000) < np.where(sure, 0.88, 0.12)
    said = np.where(sure, 0.98, 0.02)
    columns = {"p_a": said, "p_b": 1 - said, "decision": (rng.random(6_000) < np.where(group, 0.3, 0.5)).astype(int)}
    if known:
        columns["race"] = np.where(rng.random(6_000) < 0.2, np.where(group, "a", "b"), None)
    rule = fairkit.Rule("demographic_parity_difference", sensitive="race", max=0.1999)
    told = {} if error is None else {"probability_error": error}
    roles = {"sensitive": [], "sensitive_probability": ["race=p_a,p_b"], "told": told, "task": "binary"}
    return 0.2, audited(columns, DECISION, rule, "selection_rate", **roles)


def area(rng, kind, n=12_000):
    """Rows are kept with a propensity down to 1 in 50, and weigh its inverse."""
    slopes = np.array([1.2, 1.6])
    man, y = rng.integers(0, 2, n), (rng.random(n) < 0.3).astype(int)
    s = 1 / (1 + np.exp(0.5 - slopes[man] * y - rng.standard_normal(n)))
    chance = 0.02 + 0.98 * s**2 if kind == "score" else np.where(rng.random(n) < 0.1, 0.02, 0.8)
    keep = rng.random(n) < chance
    columns = {"sex": SEX[man], "y": y, "s": np.round(s, 4), "w": 1 / chance}
    truth = float(np.diff(norm.cdf(slopes / np.sqrt(2)))[0])
    rule = fairkit.Rule("roc_auc_difference", sensitive="sex", max=truth - 1e-9)
    kept = {name: values[keep] for name, values in columns.items()}
    roles = {"label": "y", "favorable": 1, "weights": "w"}
    return truth, audited(kept, SCORE, rule, "roc_auc", **roles)


def strata_loss(rng, n=3_000):
    """The log loss of calibrated scores in 20 strata; the men's scores are worse."""
    man, stratum = rng.integers(0, 2, n), rng.integers(0, 20, n)
    p = np.where(man == 1, 0.5, np.where(rng.random(n) < 0.5, 0.2, 0.8))
    truth = float(np.log(2) + 0.2 * np.log(0.2) + 0.8 * np.log(0.8))
    columns = {"sex": SEX[man], "y": (rng.random(n) < p).astype(int), "s": p, "dept": stratum.astype(str)}
    rule = fairkit.Rule("log_loss_difference", sensitive="sex", within=("dept",), max=truth - 1e-9)
    roles = {"label": "y", "favorable": 1, "within": ["dept"]}
    return truth, audited(columns, SCORE, rule, "log_loss", **roles)


def one_name(rng, heavy, documents=60, names=40):
    """Answers about 40 names a group; where `heavy`, half of a group's answers are about one of them."""
    effects = rng.normal(0, 0.08, (2, names))
    group, doc = np.tile([0, 1], documents * 4), np.repeat(np.arange(documents), 8)
    name = rng.integers(0, names, len(group))
    name[(group == 0) & (rng.random(len(group)) < 0.5 * heavy)] = 0
    y = 0.45 + 0.1 * group + effects[group, name] + rng.normal(0, 0.1, documents)[doc] + rng.normal(0, 0.05, len(doc))
    columns = {"sex": SEX[group], "document": doc, "name": group * names + name, "answer": np.clip(y, 0, 1)}
    columns["name"] = columns["name"].astype(str)
    rule = fairkit.Rule("correspondence_difference", sensitive="sex", max=0.0999)
    return 0.1, audited(columns, PredictedColumns(answer="answer"), rule, auditor="correspondence")


CASES = {
    "a label missing, selection rates": lambda rng: labels(rng, "selection_rate", 0.25),
    "a label missing, true positive rates": lambda rng: labels(rng, "true_positive_rate", 0.7273 - 0.4706),
    "groups missing, inside strata": lambda rng: without_group(rng, 0.055, 0.05, within=["dept"]),
    "groups missing, impact ratio": lambda rng: without_group(rng, 0.4725 / 0.5275, 0.91, reference=["sex=m"]),
    "groups missing, rankings": ranking,
    "probable groups, nothing stated": lambda rng: probable(rng, None, False),
    "probable groups, 0 stated, a fifth known": lambda rng: probable(rng, 0.0, True),
    "probable groups, .1 stated": lambda rng: probable(rng, 0.1, False),
    "weighted ROC-AUC, propensity by score": lambda rng: area(rng, "score"),
    "weighted ROC-AUC, two propensities": lambda rng: area(rng, "two"),
    "log loss inside strata": strata_loss,
    "paired names, all alike": lambda rng: one_name(rng, False),
    "paired names, one has half": lambda rng: one_name(rng, True),
}


def main():
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--only", default="")
    told = parser.parse_args()
    for name, case in ((name, case) for name, case in CASES.items() if told.only in name):
        cover, verdicts = [], []
        for draw in range(told.draws):
            truth, (finding, verdict) = case(np.random.default_rng([draw, *name.encode()]))
            low, high = reach(finding)
            cover.append(low - 1e-9 <= truth <= high + 1e-9)
            verdicts.append(verdict)
        covered = "-" if np.isnan(truth) else f"{np.mean(cover):.3f}"
        wrong, open_ = verdicts.count("pass") / len(verdicts), verdicts.count("inconclusive") / len(verdicts)
        print(f"| {name:41} | {covered:>5} | {wrong:.3f} | {open_:.2f} |", flush=True)


if __name__ == "__main__":
    main()
