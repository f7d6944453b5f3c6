"""Checks on metrics: sums merge, values stay in the declared range, the better direction is the better one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.charts import ChartTable
from fairkit.exporters import Card, CertifiedReport
from fairkit.few_labels import few_label_estimate, label_totals
from fairkit.metrics import CONFUSION, Mean
from fairkit.results.evidence import BUILT_IN
from fairkit.statistics import Contributions, Moments, Rows
from fairkit_testing.samples import ContractError, require, sample_data, sample_model, unchanged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.charts import EvidenceChart
    from fairkit.exporters import Exporter
    from fairkit.metrics import Estimate, Metric


GROUPS = 4
_Z = 1.959963984540054


def check_metric_declares(cls: type[Metric]) -> None:
    """Direction, range, needs, tasks and comparisons are among those that fairkit knows."""
    require(cls.better in ("lower", "higher", "none"), f"better={cls.better!r}; it is lower, higher or none")
    low, high = cls.range
    require(low < high, f"range={cls.range}: the smallest value comes first")
    for name, allowed in (
        ("needs", {"decision", "score"}),
        ("tasks", {"binary", "multiclass", "regression", "ranking"}),
        ("between", {"difference", "ratio", "extreme"}),
    ):
        declared = set(getattr(cls, name))
        require(declared <= allowed, f"{name} holds {sorted(declared - allowed)}; known are {sorted(allowed)}")
    for term in filter(None, (cls.term, *cls.terms_between.values())):
        complete = bool(term.plain) and term.meaning.endswith(".")
        require(complete, f"term={term}: a name, and a sentence that ends with a full stop")
    kinds = set(cls.terms_between)
    require(kinds <= {"difference", "ratio"}, f"terms_between has {sorted(kinds)}; known are difference and ratio")
    require(cls.tasks, "tasks is empty: the metric would never be measured")


def check_metric_shapes(cls: type[Metric]) -> None:
    """`contributions` has a line for each row, and `compute` takes sums with any axes before the last."""
    metric = cls()
    if not isinstance(metric.statistic, Contributions | Moments):
        return
    for rows, groups in _designs(cls):
        given = metric.per_row(rows) if isinstance(metric, Mean) else metric.contributions(rows)
        parts = np.asarray(given)
        wanted = (len(groups),) if isinstance(metric, Mean) else (len(groups), "m")
        what, hint = (
            ("per_row", "one number for each row; fairkit makes the mean")
            if isinstance(metric, Mean)
            else ("contributions", "np.column_stack([...]) makes columns of arrays")
        )
        require(
            parts.ndim == len(wanted) and len(parts) == len(groups),
            f"{what} gives shape {parts.shape} for {len(groups)} rows; it must be "
            f"({', '.join(map(str, wanted))}{',' * (len(wanted) == 1)}): {hint}",
        )
        sums = metric.contributions(rows).sum(axis=0)
        for lead in ((), (3,), (5, 3)):
            many = np.broadcast_to(sums, (*lead, len(sums)))
            hint = f"sums of shape {many.shape} must give shape {lead}; take the last axis, as in sums[..., 0]"
            try:
                with np.errstate(all="ignore"):
                    shape = np.shape(metric.compute(many))
            except Exception as error:
                raise ContractError(f"compute raises {type(error).__name__}: {error}; {hint}") from error
            require(shape == lead, f"compute gives shape {shape}; {hint}")


def check_metric_needs(cls: type[Metric]) -> None:
    """The metric reads no more of decisions and scores than `needs` names: a model may give only those."""
    for rows, groups in _designs(cls):
        decision, score = (getattr(rows, name) if name in cls.needs else None for name in ("decision", "score"))
        if decision is rows.decision and score is rows.score:
            continue
        missing = sorted({"decision", "score"} - set(cls.needs))
        # what this raises is no matter of needs
        _estimate(cls, rows, groups)
        try:
            _estimate(cls, Rows(outcome=rows.outcome, decision=decision, score=score), groups)
        except Exception as error:
            raise ContractError(
                f"needs={set(cls.needs) or '{}'}, but without {' and '.join(missing)} it raises "
                f"{type(error).__name__}: {error}; name in `needs` what it reads of rows"
            ) from error


def check_metric_merges(cls: type[Metric]) -> None:
    """Totals of parts add up to the total of the whole, in any order; pooled groups are one group."""
    for rows, groups in _designs(cls):
        whole = _total(cls, rows, groups)
        order = np.random.default_rng(1).permutation(len(groups))
        parts = np.array_split(order, 3)
        merged = _total(cls, _take(rows, parts[2]), groups[parts[2]])
        for part in parts[:2]:
            merged = merged + _total(cls, _take(rows, part), groups[part])
        _same(cls, whole, merged, "three parts in another order, added up, differ from the whole")
        single = _total(cls, rows, np.zeros_like(groups), 1)
        _same(cls, whole.pooled(), single, "all groups pooled differ from one group of everybody")


def check_metric_range(cls: type[Metric]) -> None:
    """Values and interval ends lie in the declared range, and each value in its interval; NaN where undefined."""
    low, high = cls.range
    slack = 1e-9 * max([1.0, *(abs(end) for end in (low, high) if math.isfinite(end))])
    for rows, groups in _designs(cls):
        estimate = _estimate(cls, rows, groups)
        values = np.asarray(estimate.values, dtype=float)
        require(values.shape == (GROUPS,), f"values have shape {values.shape} for {GROUPS} groups")
        defined = values[~np.isnan(values)]
        require(
            not np.isinf(defined).any(), f"a value is infinite ({defined}); where the metric is undefined it is NaN"
        )
        require(
            ((defined >= low - slack) & (defined <= high + slack)).all(),
            f"values {defined} leave the declared range {cls.range}",
        )
        lower, upper = (np.asarray(end, dtype=float) for end in estimate.limits(_Z))
        good = ~np.isnan(values) & ~np.isnan(lower) & ~np.isnan(upper)
        require(
            (
                (lower[good] <= values[good] + slack)
                & (values[good] <= upper[good] + slack)
                & (lower[good] >= low - slack)
                & (upper[good] <= high + slack)
            ).all(),
            f"intervals {lower} to {upper} do not hold the values {values}, or leave the range {cls.range}",
        )


def check_metric_direction(cls: type[Metric]) -> None:
    """The declared better direction is that of a perfect model over one that is wrong for everybody."""
    if cls.better == "none" or not {"binary", "regression"} & set(cls.tasks):
        return
    rng = np.random.default_rng(2)
    outcome = np.tile([0.0, 1.0], 200) if "binary" in cls.tasks else rng.normal(size=400)
    groups = np.zeros(400, dtype=np.int64)
    worse = 1.0 - outcome if "binary" in cls.tasks else -outcome + 1.0
    values = []
    for predicted in (outcome, worse):
        score = np.clip(predicted, 0.01, 0.99) if "binary" in cls.tasks else predicted
        decision = predicted if "binary" in cls.tasks else None
        rows = Rows(outcome=outcome, decision=decision, score=score)
        values.append(float(cls().estimate(_total(cls, rows, groups, 1), rng).values[0]))
    perfect, wrong = values
    if math.isnan(perfect) or math.isnan(wrong):
        return
    right = perfect >= wrong if cls.better == "higher" else perfect <= wrong
    require(
        right, f"better={cls.better!r}, but a perfect model has {perfect:.4g} and one that is always wrong {wrong:.4g}"
    )


def check_metric_weights(cls: type[Metric]) -> None:
    """A row of weight 2 is worth two rows."""
    rng = np.random.default_rng(3)
    for rows, groups in _designs(cls):
        times = rng.integers(1, 4, len(groups))
        weighted = Rows(outcome=rows.outcome, decision=rows.decision, score=rows.score, weights=times.astype(float))
        copies = np.repeat(np.arange(len(groups)), times)
        weighted_values = _estimate(cls, weighted, groups).values
        copied_values = _estimate(cls, _take(rows, copies), groups[copies]).values
        require(
            np.allclose(weighted_values, copied_values, rtol=1e-9, atol=1e-12, equal_nan=True),
            f"weights 1, 2, 3 give {weighted_values}, as many copies of the rows {copied_values}",
        )


def check_metric_shares(cls: type[Metric]) -> None:
    """A metric that says it follows from shares of outcomes is one of the confusion cells, whatever rows are labelled.

    With every row labelled few labels are no other number: value and limits are those without the option.
    """
    require(cls.shares in ("", "decision-outcome"), f"shares={cls.shares!r}; it is decision-outcome, or empty")
    if not cls.shares:
        return
    metric = cls()
    require(
        metric.statistic is CONFUSION, "shares: `compute` takes the four confusion cells, so `statistic` is CONFUSION"
    )
    for rows, groups in _designs(cls):
        if rows.decision is None or not ((rows.decision == 0) | (rows.decision == 1)).all():
            continue
        plain = _estimate(cls, rows, groups)
        totals = label_totals(groups, GROUPS, rows.decision, rows.outcome, np.ones(len(groups), dtype=bool))
        few = few_label_estimate(metric, totals, plain, np.ones(GROUPS, dtype=bool))
        same = np.array_equal(few.values, plain.values, equal_nan=True)
        ends = zip(few.limits(_Z), plain.limits(_Z), strict=True)
        same &= all(np.allclose(a, b, rtol=0, atol=0, equal_nan=True) for a, b in ends)
        require(same, f"shares: with every row labelled few labels give {few.values}, the metric {plain.values}")
        alone = few_label_estimate(metric, totals, None, np.zeros(GROUPS, dtype=bool)).values
        is_known = np.isfinite(alone) & np.isfinite(plain.values)
        require(
            np.allclose(alone[is_known], plain.values[is_known]),
            "shares: the number is no function of the cells' shares",
        )


def check_metric_deterministic(cls: type[Metric]) -> None:
    """The same totals and seed give the same value and interval, to the last bit."""
    for rows, groups in _designs(cls):
        results = []
        for _ in range(2):
            estimate = _estimate(cls, rows, groups, seed=5)
            results.append([np.asarray(part) for part in (estimate.values, *estimate.limits(_Z))])
        require(
            all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*results, strict=True)),
            "two runs with one seed differ: draw only from the generator that `estimate` is given",
        )


def check_metric_inputs_unchanged(cls: type[Metric]) -> None:
    """The arrays that a metric is given stay as they are."""
    for rows, groups in _designs(cls):
        arrays = {"outcome": rows.outcome, "decision": rows.decision, "score": rows.score}
        inputs = {name: values for name, values in arrays.items() if values is not None}
        with unchanged(inputs.copy, "rows."):
            _estimate(cls, rows, groups)


def _designs(cls: type[Metric]) -> Iterator[tuple[Rows, NDArray[np.int64]]]:
    """Return rows of ordinary and of extreme kinds: soft and hard decisions, one-sided groups, tiny groups."""
    rng = np.random.default_rng(0)
    groups = np.concatenate([np.zeros(60), np.ones(30), np.full(9, 2), [3]]).astype(np.int64)
    n = len(groups)
    if "binary" in cls.tasks:
        score = np.round(rng.random(n), 3)
        outcome = (rng.random(n) < score).astype(float)
        yield Rows(outcome=outcome, decision=(score >= 0.5).astype(float), score=score), groups
        yield Rows(outcome=outcome, decision=rng.random(n), score=score), groups
        one_sided = np.where(groups == 1, 1.0, outcome)
        yield Rows(outcome=one_sided, decision=np.where(groups == 2, 0.0, one_sided), score=score), groups
        zeros = np.zeros(n)
        yield Rows(outcome=1.0 - zeros, decision=zeros, score=zeros), groups
    if "regression" in cls.tasks and "decision" not in cls.needs:
        target = rng.normal(size=n)
        yield Rows(outcome=target, score=target + rng.normal(size=n)), groups
        yield Rows(outcome=np.ones(n), score=np.ones(n)), groups


def _total(cls: type[Metric], rows: Rows, groups: NDArray[np.int64], count: int = GROUPS) -> Any:
    return cls().statistic.collect(rows, groups, count)


def _estimate(cls: type[Metric], rows: Rows, groups: NDArray[np.int64], *, seed: int = 0) -> Estimate:
    return cls().estimate(_total(cls, rows, groups), np.random.default_rng(seed))


def _take(rows: Rows, index: NDArray[np.int64]) -> Rows:
    return Rows(
        outcome=rows.outcome[index],
        decision=None if rows.decision is None else rows.decision[index],
        score=None if rows.score is None else rows.score[index],
    )


def _same(cls: type[Metric], one: Any, two: Any, message: str) -> None:
    first, second = (cls().estimate(total, np.random.default_rng(0)).values for total in (one, two))
    require(np.allclose(first, second, rtol=1e-9, atol=1e-12, equal_nan=True), f"{message}: {first} and {second}")


METRIC_CHECKS = (
    check_metric_declares,
    check_metric_needs,
    check_metric_shapes,
    check_metric_merges,
    check_metric_range,
    check_metric_direction,
    check_metric_weights,
    check_metric_shares,
    check_metric_deterministic,
    check_metric_inputs_unchanged,
)


# Checks on exporters: text, the same for the same version, whatever people have written about it.


_STRANGE = "# a|b\n---\n<script>\"'\u2028 {{x}} \U0001f600"


def check_export_is_text(cls: type[Exporter]) -> None:
    """`export` returns text that UTF-8 can hold, with and without certificates, whatever notes and tags say."""
    for card in _cards():
        text = cls().export(card)
        require(isinstance(text, str), f"export gives {type(text).__name__}; return text")
        require(text.strip() != "", f"export says nothing about {card.reference}")
        text.encode("utf-8")


def check_export_deterministic(cls: type[Exporter]) -> None:
    """The same version gives the same text: people and programs compare it."""
    for card in _cards():
        require(
            cls().export(card) == cls().export(card),
            "the same version gives another text the second time; take times from `card.added_at` and the certificates",
        )


def check_export_tells_versions_apart(cls: type[Exporter]) -> None:
    """Two versions with other files give other texts."""
    first, second, *_ = _cards()
    require(cls().export(first) != cls().export(second), "two versions with other files give the same text")


def _cards() -> Iterator[Card]:
    """Return a version without a certificate, one with a certificate that is verified, and one with a claim."""
    import fairkit
    from fairkit_onnx.read.graph import digest

    content = sample_model("binary")
    data = sample_data("binary", rows=200)
    report = fairkit.audit(content, data, policy=[fairkit.Rule("accuracy", min=0.5)])
    for version, notes, verified in ((1, "", None), (2, "", True), (3, _STRANGE, False)):
        certified = CertifiedReport(
            sha256="c" * 64,
            report=report,
            audited_at="2026-01-31T12:00:00Z",
            keyids=("a" * 64,),
            verified=bool(verified),
            mitigation={"plugin": "reweigh", "parameters": {"cells": 2}, "base": None} if verified else None,
        )
        yield Card(
            name="credit",
            version=version,
            model_sha256=digest(content) if version == 1 else f"{version}" * 64,
            size=len(content),
            added_at="2026-01-30T12:00:00Z",
            parent="credit@1" if version > 1 else None,
            tags=(notes,) if notes else (),
            notes=notes,
            aliases=("production",) if verified else (),
            inputs=("age: float [N, 1]",),
            outputs=("probability: float [N, 2]",),
            operators={"Add": 1, "MatMul": 1},
            weights=12,
            attached=() if verified is None else ("c" * 64,),
            certificates=() if verified is None else (certified,),
        )


EXPORTER_CHECKS = (check_export_is_text, check_export_deterministic, check_export_tells_versions_apart)


# Checks on evidence charts: numbers in a table, a picture that holds its data, and values that are left alone.


def check_chart_table(cls: type[EvidenceChart]) -> None:
    """The example becomes a table whose rows are as long as its columns; the same value gives the same table."""
    require(cls.name not in BUILT_IN, f"fairkit shows the evidence {cls.name!r} itself; choose another key")
    value = cls.example()
    table = cls().table(value)
    require(isinstance(table, ChartTable), f"table gives {table!r}; return a fairkit.charts.ChartTable")
    require(table.columns, "the table has no columns")
    for row in table.rows:
        require(len(row) == len(table.columns), f"the row {row!r} is not as long as {table.columns!r}")
    require(cls().table(value) == table, "the same value gives another table the second time")


def check_chart_picture(cls: type[EvidenceChart]) -> None:
    """The picture is a Vega-Lite specification of JSON values with its data in it, for wide and narrow screens."""
    for narrow in (False, True):
        spec = cls().picture(cls.example(), narrow=narrow)
        if spec is None:
            continue
        json.dumps(spec, allow_nan=False)
        require(
            not any(key == "url" for key in _keys(spec)),
            "the picture fetches data from an address; put it into data.values",
        )


def check_chart_example(cls: type[EvidenceChart]) -> None:
    """The example is made of JSON values, as evidence is, and showing it leaves it as it is."""
    value = cls.example()
    before = json.dumps(value, allow_nan=False)
    cls().table(value)
    cls().picture(value, narrow=False)
    require(json.dumps(value) == before, "the evidence was changed; work on a copy")


def _keys(spec: Any) -> list[str]:
    if isinstance(spec, dict):
        return [*spec, *(key for value in spec.values() for key in _keys(value))]
    return [key for item in spec for key in _keys(item)] if isinstance(spec, list | tuple) else []


CHART_CHECKS = (check_chart_table, check_chart_picture, check_chart_example)
