"""Every check of a statement at its edges: made findings that are just right, and just wrong."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from fairkit.results.findings import Finding, GroupValue, StratumValue
from fairkit_registry.evidence.arithmetic import two_sided
from fairkit_registry.evidence.consistency import classes, conditions, counts, numbers, recount, scores
from fairkit_registry.evidence.consistency.facts import facts
from fairkit_registry.evidence.consistency.statement import _compared, _outcome, _twice

from .test_identities import made

EPS = numbers.ROUNDING


@pytest.fixture(scope="module")
def report():
    return made()[0]


def group_of(name, rows, value, interval=None, over=None):
    return GroupValue(group=name, rows=rows, value=value, interval=interval, denominator=over)


def stratum_of(name, rows, value, interval=None):
    return StratumValue(stratum=name, rows=rows, value=value, interval=interval)


def rate(metric="accuracy_difference", values=(0.5, 0.75), **changes):
    """A finding of two groups of 100 rows by default."""
    rows = changes.pop("rows", (100,) * len(values))
    ends = changes.pop("ends", ((0.4, 0.6), (0.7, 0.8)))
    groups = tuple(group_of(f"g{i}", n, v, e, None if v is None else float(n))
                   for i, (n, v, e) in enumerate(zip(rows, values, ends, strict=True)))  # fmt: skip
    known = [v for v in values if v is not None]
    value = changes.pop("value", max(known) - min(known) if known else None)
    told = {"auditor": "group", "sensitive": "sex", "better": "lower", "groups": groups, "value": value}
    return Finding(metric=metric, **(told | changes))


def whole(metric, value, **changes):
    return Finding(auditor="group", metric=metric, value=value, better="higher", **changes)


def of(report, *findings, rows=200, groups=None, missing=None):
    sizes = {"sex": {"g0": 100, "g1": 100}} if groups is None else groups
    data = replace(report.data, rows=rows, groups=sizes, missing=missing or {})
    return replace(report, findings=findings, data=data)


# recount


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("smallest", [0.5, 0.25], 0.25),
        ("largest", [0.5, 0.25], 0.5),
        ("smallest", [], None),
        ("largest", [0.5], 0.5),
        ("difference", [0.5], None),
        ("difference", [0.5, 0.125, 0.25], 0.375),
        ("ratio", [0.5, 0.125], 0.25),
        ("ratio", [0.5], None),
        ("ratio", [0.0, 0.0], None),
        ("ratio", [0.5, 0.0], 0.0),
        ("ratio", [0.5, -0.1], None),
        ("ratio", [-0.5, -0.1], None),
    ],
)
def test_a_disparity_of_values(kind, values, expected):
    assert recount.from_groups(kind, values) == expected


def test_a_disparity_is_computed_again_where_it_follows_from_groups():
    check = lambda finding: list(recount.check_disparity(finding))  # noqa: E731 -- short
    assert check(rate()) == []
    assert check(rate(value=None)) == []
    assert check(rate(value=0.25 + 1e-10)) == []
    assert check(rate(value=0.26)) == ["its value is 0.26, and its groups give 0.25"]
    (text,) = check(rate(values=(0.5, None), value=0.1))
    assert text == "it has the value 0.1, but fewer than two groups that have one"
    assert check(rate(values=(0.5, None), value=None)) == []
    for unread in ({"auditor": "why"}, {"sensitive": None}, {"metric": "unknown"}, {"metric": "gap_rms"}):
        assert check(replace(rate(value=0.9), **unread)) == []
    assert check(replace(rate("accuracy_group_min", value=0.5))) == []
    assert len(check(replace(rate("accuracy_group_min", value=0.75)))) == 1


def test_the_interval_of_a_difference_is_as_wide_as_its_groups_make_it():
    check = lambda finding: list(recount.check_width(finding))  # noqa: E731 -- short
    # of g1 - g0: .25 + sqrt(.05² + .1²), .25 - sqrt(.05² + .1²), and of g0 - g1 nothing above 0
    half = math.hypot(0.05, 0.1)
    right = (0.25 - half, 0.25 + half)
    assert check(rate(interval=right)) == []
    assert check(rate(interval=(right[0] + 9e-7, right[1] - 9e-7))) == []
    assert check(rate(interval=(right[0] + 1e-6, right[1] - 1e-6))) == []  # as much as is allowed
    assert check(rate(interval=(right[0], right[1] - 2e-6)))
    assert check(rate(interval=(right[0] + 2e-6, right[1])))
    (text,) = check(rate(interval=(0.2, 0.3)))
    assert text == f"its interval [0.2, 0.3] is narrower than those of its groups allow: [{right[0]:g}, {right[1]:g}]"
    uneven = rate(ends=((0.4, 0.6), (0.7, 0.9)))
    up = 0.25 + math.hypot(0.15, 0.1)
    assert check(replace(uneven, interval=(0.0, up))) == []
    assert check(replace(uneven, interval=(0.0, up - 1e-5)))
    # beyond 1 the slack is relative
    large = rate("mean_absolute_error_difference", values=(0.0, 1e4), ends=((0.0, 1.0), (9e3, 2e4)))
    top = 1e4 + math.hypot(1e4, 0.0)
    assert check(replace(large, interval=(8e3, top - 0.01))) == []
    assert check(replace(large, interval=(8e3, top - 0.03)))
    for unread in ({"auditor": "why"}, {"interval": None}, {"metric": "accuracy_ratio"}, {"metric": "unknown"}):
        assert check(replace(rate(interval=(0.25, 0.25)), **unread)) == []
    assert check(rate(values=(0.5, None), value=0.0, interval=(0.0, 0.0))) == []
    assert check(rate(ends=(None, (0.7, 0.8)), interval=(0.25, 0.25))) == []
    assert check(rate(ends=((0.4, math.inf), (0.7, 0.8)), interval=(0.25, 0.25))) == []


def test_of_four_groups_the_upper_end_may_be_lower():
    values, ends = (0.5, 0.5, 0.5, 0.52), ((0.4, 0.6),) * 3 + ((0.42, 0.62),)
    most = 0.02 + math.hypot(0.1, 0.1)
    four = rate(values=values, ends=ends, confidence=0.95)
    share = recount._selected_share(0.02, most, [0.2] * 4, two_sided(0.95))
    assert 0.05 < share < 0.5
    least = 0.02 + recount.CURVED * share * (most - 0.02)
    assert least < most - 0.01
    assert list(recount.check_width(replace(four, interval=(0.0, least)))) == []
    assert list(recount.check_width(replace(four, interval=(0.0, least - 1e-5))))
    three = rate(values=values[1:], ends=ends[1:], interval=(0.0, least))
    assert list(recount.check_width(three))


def test_the_share_is_that_of_the_audits_own_limit():
    """The fixed point of end = widest + share · (most - widest), share = factor(end) / z."""
    from fairkit.limits.selection import selected_quantile

    z = two_sided(0.95)
    for widths in ([0.2] * 5, [0.2, 0.3, 0.25, 0.22], [0.1] * 20):
        errors = [width / (2 * z) for width in widths]
        most = 0.02 + math.sqrt(2) * max(widths) / 2
        share = 1.0
        for _ in range(6):
            end = 0.02 + share * (most - 0.02)
            apart = end / (math.sqrt(2) * min(errors))
            share = min(share, selected_quantile(len(widths), apart, min(errors) / max(errors), 0.025) / z)
        assert recount._selected_share(0.02, most, widths, z) == pytest.approx(share, abs=2e-3)
        assert share < 1
    assert recount._selected_share(0.02, 0.2, [0.0, 0.1, 0.1, 0.1], z) == 0.0
    assert recount._selected_share(9.0, 9.2, [0.2] * 4, z) == 1.0


def test_groups_are_those_of_the_data(report):
    data = of(report)
    check = lambda finding, data=data, least=30.0: list(recount.check_groups(finding, data, least))  # noqa: E731
    assert check(rate()) == []
    assert check(rate(rows=(100, 99)))
    assert check(replace(rate(), sensitive="age")) == ["the data have no groups of 'age'"]
    twice = replace(rate(), groups=(rate().groups[0],) * 2)
    assert check(twice)[0] == "a group is in it twice"
    assert check(replace(rate(), groups=())) == ["it has a value and no groups"]
    assert check(replace(rate("class_gap_rms"), groups=())) == []
    assert check(replace(rate("unknown"), groups=())) == []
    assert check(replace(rate(), groups=(), value=None)) == []
    assert check(rate(), least=100.0) == []
    (text,) = check(rate(), least=101.0)
    assert text == "group g0 has 100 rows, fewer than 101, and it is not marked as inconclusive"
    assert check(replace(rate(), inconclusive="few"), least=101.0) == []
    assert check(rate(values=(0.5, None), value=0.1)) == ["group g1 has no value, and it is not marked as inconclusive"]
    assert check(rate(values=(0.5, None), value=None)) == []
    hidden = of(report, rows=205, missing={"sex": 5})
    beyond = group_of("missing", 5, 0.5)
    assert check(replace(rate(), missing=beyond), hidden) == []
    assert check(replace(rate(), missing=replace(beyond, rows=4)), hidden) == [
        "its rows without a group are 4, those of the data are 5"
    ]
    for unread in ({"auditor": "why"}, {"sensitive": None}):
        assert check(replace(rate(rows=(1, 2)), **unread)) == []


def test_a_number_over_all_rows_lies_among_the_groups(report):
    def check(value, metric="accuracy", finding=None, weighted=False, **more):
        told = finding or rate(f"{metric}_difference", values=(0.5, 0.75), rows=(100, 300))
        data = of(report, told, whole(metric, value), rows=400, groups={"sex": {"g0": 100, "g1": 300}}, **more)
        return list(recount.check_pooled(data, weighted=weighted))

    mean = (100 * 0.5 + 300 * 0.75) / 400
    assert check(mean) == []
    assert check(mean + 9e-7) == []
    (text,) = check(mean + 2e-6)
    assert text == f"accuracy over all rows is {mean + 2e-6:g}, and the groups of sex give {mean:g}"
    assert check(0.6, weighted=True) == []
    for inside in (0.5, 0.75, 0.5 - EPS / 2, 0.75 + EPS / 2):
        assert check(inside, weighted=True) == []
    for outside in (0.5 - 2 * EPS, 0.75 + 2 * EPS):
        assert check(outside, weighted=True) == [
            f"accuracy over all rows is {outside:g}, outside those of the groups of sex"
        ]
    assert check(0.6, "precision") == []
    assert check(0.8, "precision")
    assert check(0.9, "roc_auc") == []
    large = rate("mean_squared_error_difference", values=(1e6, 2e6), rows=(100, 300))
    assert check(1.75e6 + 1.0, "mean_squared_error", large) == []
    assert check(1.75e6 + 3.0, "mean_squared_error", large)
    one = rate(values=(0.5, None), rows=(100, 300), value=None)
    assert check(0.5, finding=one) == []
    assert check(0.6, finding=one)
    assert check(None) == []
    assert check(0.9, finding=rate("accuracy_ratio")) == []
    # rows without a group count in the whole
    beyond = replace(rate(values=(0.5, 0.75), rows=(100, 300)), missing=group_of("missing", 100, 0.0))
    assert check((50 + 225) / 500, finding=beyond, missing={"sex": 100}) == []
    assert check(mean, finding=beyond, missing={"sex": 100})
    assert check(0.1, missing={"sex": 100}) == []
    own = rate(values=(0.5, 0.75), rows=(100, 300))
    others = [whole("accuracy", 0.9, sensitive="age"), replace(whole("accuracy", 0.9), auditor="why")]
    data = of(report, own, whole("accuracy", mean), *others, rows=400, groups={"sex": {"g0": 100, "g1": 300}})
    assert list(recount.check_pooled(data, weighted=False)) == []
    by_class = rate(values=(0.5, 0.75), rows=(100, 300), parameters={"class": "a"})
    assert check(0.9, finding=by_class) == []


def test_joint_gaps_are_over_the_groups_that_both_rates_have():
    one = rate("true_positive_rate_difference", values=(0.5, 0.75, None), ends=(None,) * 3)
    two = rate("false_positive_rate_difference", values=(0.25, None, 0.5), ends=(None,) * 3)
    assert recount._rms([one, two]) is None
    both = rate("false_positive_rate_difference", values=(0.25, 0.75, 0.5), ends=(None,) * 3)
    assert recount._rms([one, both]) == pytest.approx(math.sqrt((0.25**2 + 0.5**2) / 2))
    three = rate("true_positive_rate_difference", values=(0.5, 0.75, 0.0), ends=(None,) * 3)
    assert recount._rms([three, both]) == pytest.approx(math.sqrt((0.75**2 + 0.25**2) / 2))
    assert recount._rms([None, both]) is None


@pytest.mark.parametrize(("metric", "right"), [("equalized_odds_difference", 0.5), ("gap_max", 0.5)])
def test_a_joint_disparity_is_the_larger_of_the_two(report, metric, right):
    parts = [rate("true_positive_rate_difference"), rate("false_positive_rate_difference", values=(0.25, 0.75))]

    def check(value, some=parts):
        joint = replace(rate(metric), value=value, groups=())
        return list(recount.check_odds(of(report, joint, *some)))

    assert check(right) == []
    assert check(None) == []
    assert check(0.25) == [f"{metric} of sex is 0.25, and the two rates give 0.5"]
    assert check(0.25, parts[:1]) == []
    assert check(0.25, [replace(one, value=None) for one in parts]) == []
    assert check(0.25, [replace(parts[0], value=None), parts[1]])
    assert check(0.25, [replace(one, auditor="why") for one in parts]) == []


def test_rows_without_a_group_are_not_hidden(report):
    bounds = {"low": 0.1, "high": 0.4, "binding": True}

    def check(missing=10, binding=0.02, told=bounds, rows=1_000, **changes):
        finding = replace(rate(evidence={} if told is None else {"missing_bounds": told}), **changes)
        return list(recount.check_missing(of(report, finding, rows=rows, missing={"sex": missing}), binding))

    assert check() == []
    assert check(told=None) == [
        "accuracy_difference of sex does not say what the 10 rows without a group could do to it"
    ]
    assert check(told=None, missing=0) == []
    for unread in ({"auditor": "why"}, {"metric": "accuracy_group_min"}, {"metric": "unknown"}, {"value": None}):
        assert check(told=None, **unread) == []
    assert check(told=None, metric="accuracy_ratio")
    assert check(value=0.1 - EPS / 2) == []
    assert check(value=0.4 + EPS / 2) == []
    assert check(value=0.1 - 3 * EPS)
    assert check(value=0.4 + 3 * EPS) == ["accuracy_difference of sex is 0.4, outside its own bounds [0.1, 0.4]"]
    words = "accuracy_difference of sex does not hold its verdict against the 10 rows without a group"
    assert check(told=bounds | {"binding": False}) == [words]
    open_ones = {"binding": False}  # no bounds are known: few missing rows do not bind
    assert check(told=open_ones) == []
    assert check(told=open_ones, rows=500) == []
    assert check(told=open_ones, rows=499) == [words]
    assert check(told=open_ones | {"binding": True}, rows=499) == []


def test_a_chart_may_be_off_by_its_digits_only():
    def check(*counts, rows=(10_000, 100)):
        finding = rate(rows=rows, evidence={"score_counts": list(counts)})
        return list(recount.check_chart(finding, weighted=False))

    assert check(5_000, 5_009, 100, 0) == []
    assert check(5_000, 4_991, 100, 0) == []
    assert check(5_000, 5_011, 100, 0)
    assert check(5_000, 4_989, 100, 0)
    assert check(10_000, 0, 50, 50.09) == []
    assert check(10_000, 0, 50, 50.11)
    assert check(1, 0, rows=(1, 0)) == []
    assert check(1, 0.0009, rows=(1, 0)) == []
    assert check(1, 0.0011, rows=(1, 0))


# counts


def shares(tp=30, fp=20, positives=50, rows=120, **changes):
    """The rates of one group as counts."""
    negatives, selected = rows - positives, tp + fp
    told = {
        "selection_rate": (selected, rows),
        "accuracy": (tp + negatives - fp, rows),
        "true_positive_rate": (tp, positives),
        "false_negative_rate": (positives - tp, positives),
        "false_positive_rate": (fp, negatives),
        "true_negative_rate": (negatives - fp, negatives),
        "precision": (tp, selected),
    } | changes
    return {name: counts.Share(count / over, over, None) for name, (count, over) in told.items() if count is not None}


def said(some, rows=120):
    return list(counts._identities(some, rows))


def test_rates_of_one_group_are_shares_of_the_same_rows():
    assert said(shares()) == []
    for name in counts.RATES:
        assert said({k: v for k, v in shares().items() if k != name}) == []
    for name, (count, over) in {
        "selection_rate": (51, 120), "accuracy": (79, 120), "true_positive_rate": (31, 50),
        "false_negative_rate": (19, 50), "false_positive_rate": (19, 70), "true_negative_rate": (51, 70),
        "precision": (31, 50),
    }.items():  # fmt: skip
        assert said(shares(**{name: (count, over)})), name
        # by less than a millionth of a row it is rounding
        right = shares()[name].count
        assert said(shares(**{name: (right + 5e-7, over)})) == [], name
        assert said(shares(**{name: (right + 2e-6, over)})), name


def test_the_rows_that_rates_are_over_agree():
    assert said(shares(accuracy=(80, 121))) == ["accuracy is over 121 rows, and the rows are 120"]
    assert said(shares(false_negative_rate=(20, 51))) == [
        "false_negative_rate is over 51 rows, and the positives are 50"
    ]
    half = shares(tp=30, positives=50.5, rows=120)
    assert "its positives are 50.5, which is no number of rows" in said(half)
    one = {name: share for name, share in half.items() if RATES_OVER[name] == "negatives"}
    assert "its negatives are 69.5, which is no number of rows" in said(one)
    more = said(shares(false_positive_rate=(20, 71), true_negative_rate=(51, 71)))
    assert "its positives and negatives are 50 and 71, and it has 120 rows" in more
    alone = {"true_positive_rate": counts.Share(0.5, 50.0, None)}
    assert said(alone) == []
    assert said({"accuracy": counts.Share(0.5, 120.0, None)}) == []


RATES_OVER = counts.RATES


def test_precision_is_over_what_was_selected():
    assert said(shares(precision=(30, 51))) != []
    drawn = shares(tp=30.25, fp=20.5)  # drawn decisions count as fewer rows than their sum, never as more than they are
    assert not counts._sharp(drawn)
    value = drawn["precision"].value
    for over, good in ((drawn["precision"].over, True), (60.0, True), (50.0, False)):
        assert (said(drawn | {"precision": counts.Share(value, over, None)}) == []) == good
    assert said(drawn | {"precision": counts.Share(value + 1e-3, 60.0, None)})


@pytest.mark.parametrize("names", [*itertools.permutations(("true_positive_rate", "false_negative_rate"), 1)])
@pytest.mark.parametrize("others", [("false_positive_rate",), ("true_negative_rate",), ()])
def test_cells_follow_from_any_rate_of_each_outcome(names, others):
    some = {name: shares()[name] for name in (*names, *others)}
    right, wrong, positives = counts._cells(some, 120)
    assert (right, positives) == (pytest.approx(30), 50)
    assert wrong == (pytest.approx(20) if others else 0.0)
    only = {name: shares()[name] for name in others}
    if only:
        assert counts._cells(only, 120) == (0.0, pytest.approx(20), 50)
    assert counts._cells({"accuracy": shares()["accuracy"]}, 120) is None


def test_whole_counts_are_sharp():
    assert counts._sharp(shares())
    assert counts._sharp({"accuracy": counts.Share((50 + 9e-7) / 100, 100.0, None)})
    assert not counts._sharp({"accuracy": counts.Share((50 + 2e-6) / 100, 100.0, None)})
    assert counts._sharp({"accuracy": counts.Share((5e8 + 0.4) / 1e9, 1e9, None)})
    assert not counts._sharp(shares() | {"accuracy": counts.Share(0.505, 100.0, None)})


def test_what_stands_twice_is_alike():
    alike = counts._alike
    assert alike(1.0, 1.0 + 1e-13)
    assert not alike(1.0, 1.0 + 1e-11)
    assert alike((1.0, (0.5, None)), (1.0, (0.5, None)))
    assert not alike((1.0, (0.5, None)), (1.0, (0.5, 0.1)))
    assert not alike((1.0,), (1.0, 2.0))
    assert not alike((1.0, 2.0), (1.0, 3.0))
    assert not alike((1.0,), 1.0)
    assert not alike(1.0, None)
    assert alike(None, None)


def test_intervals_of_rates_follow_from_counts():
    over = ((0.5, 100.0), (0.6, 50.0))
    assert counts.interval_of("difference", over[:1], 0.95) is None
    assert counts.interval_of("difference", ((0.5, 100.0), (0.6, 0.0)), 0.95) is None
    assert counts.interval_of("smallest", over[:1], 0.95) is not None
    low, high = counts.interval_of("smallest", over, 0.95)
    assert low < 0.5 < high
    assert counts.interval_of("largest", over, 0.95)[1] > 0.6
    assert counts.interval_of("ratio", ((0.0, 100.0), (0.0, 100.0)), 0.95) is None
    low, high = counts.interval_of("difference", over, 0.95)
    assert low == 0.0
    assert high > 0.2


def test_the_interval_of_a_disparity_is_that_of_its_counts():
    base = rate("accuracy_difference", values=(0.5, 0.6), rows=(100, 50), ends=(None, None))
    ends = counts.interval_of("difference", ((0.5, 100.0), (0.6, 50.0)), 0.95)

    def check(finding, told=base):
        return list(counts._interval("sex", finding, {"accuracy": told} if told else {}))

    assert check(replace(base, interval=ends)) == []
    assert check(replace(base, interval=None)) == []
    assert check(replace(base, interval=(0.0, 0.1), value=None)) == []
    assert check(replace(base, interval=(0.0, 0.1)), None) == []
    (text,) = check(replace(base, interval=(0.0, 0.1)))
    assert text.endswith(f"has the interval [0, 0.1], the counts of its groups give [{ends[0]:g}, {ends[1]:g}]")
    alone = replace(base, groups=base.groups[:1])
    (text,) = check(replace(base, interval=(0.0, 0.1)), alone)
    assert text.endswith("the counts of its groups give none")


def test_ends_are_the_same_but_for_a_millionth():
    assert counts._same((0.1, 0.2), (0.1 + 9e-7, 0.2))
    assert not counts._same((0.1, 0.2), (0.1 + 3e-6, 0.2))
    assert not counts._same((0.1, 0.2), (0.1, 0.2 - 3e-6))


def test_rates_over_all_rows_follow_from_the_groups():
    from fairkit_registry.evidence.arithmetic import share_limits

    groups = {"a": {"accuracy": counts.Share(0.5, 100.0, None)}, "b": {"accuracy": counts.Share(0.75, 300.0, None)}}
    value = 275 / 400
    ends = share_limits(value, 400.0, two_sided(0.95))

    def check(finding, sharp=True, some=groups):
        return list(counts._pooled("sex", some, {finding.metric: finding}, sharp=sharp))

    assert check(whole("accuracy", value, interval=ends)) == []
    assert check(whole("accuracy", value)) == []
    assert check(whole("accuracy", value + 1e-8)) != []
    assert check(whole("accuracy", value + 3e-9)) == []
    wide = whole("accuracy", value, interval=(ends[0] - 0.01, ends[1]))
    assert len(check(wide)) == 1
    assert check(wide, sharp=False) == []
    assert check(whole("accuracy", None)) == []
    assert check(whole("precision", 0.1)) == []
    assert check(whole("precision", 0.1), some={"a": {"precision": counts.Share(0.5, 10.0, None)}}) != []
    assert check(whole("precision", 0.1), False, {"a": {"precision": counts.Share(0.5, 10.0, None)}}) == []
    assert check(whole("accuracy", 0.1), some={"a": {"accuracy": counts.Share(0.0, 0.0, None)}}) == []


# scores


def drawn(seed, bins=8, rows=60):
    """Scores within bins, and the bins' counts of both outcomes."""
    rng = np.random.default_rng(seed)
    edges = np.linspace(0, 1, bins + 1)
    score = rng.random(rows)
    outcome = rng.random(rows) < score**1.5
    place = np.minimum((score * bins).astype(int), bins - 1)
    mass = [(float(((place == b) & ~outcome).sum()), float(((place == b) & outcome).sum())) for b in range(bins)]
    return edges.tolist(), mass, score, outcome


@pytest.mark.parametrize("seed", range(20))
def test_what_a_chart_leaves_possible_holds_the_number_and_is_reached(seed):
    edges, mass, score, outcome = drawn(seed)
    order = np.argsort(score)
    number = {
        "brier_score": np.mean((score - outcome) ** 2),
        "calibration_in_the_large": np.mean(score - outcome),
        "ecce": np.abs(np.cumsum((outcome * 1.0 - score)[order])).max() / len(score),
        "roc_auc": np.mean([(p > n) + (p == n) / 2 for p in score[outcome] for n in score[~outcome]]),
    }
    reach = 0.01 / 8
    low = np.array([max(edge - reach, 0) for edge in edges[:-1]])
    high = np.array([min(edge + reach, 1) for edge in edges[1:]])
    no, yes = np.array(mass).T
    rows = len(score)
    for metric, value in number.items():
        least, most = scores.possible(metric, edges, mass)
        assert least - 1e-12 <= value <= most + 1e-12, metric
    assert scores.possible("brier_score", edges, mass) == pytest.approx(
        ((no @ low**2 + yes @ (1 - high) ** 2) / rows, (no @ high**2 + yes @ (1 - low) ** 2) / rows)
    )
    assert scores.possible("calibration_in_the_large", edges, mass) == pytest.approx(
        (((no + yes) @ low - yes.sum()) / rows, ((no + yes) @ high - yes.sum()) / rows)
    )
    pairs = no.sum() * yes.sum()
    surely = sum(yes[i] * no[j] for i in range(8) for j in range(i)) / pairs
    tied = sum(yes[i] * no[i] for i in range(8)) / pairs
    near = sum(yes[i] * no[j] for i in range(8) for j in range(8) if abs(i - j) == 1) / pairs
    assert scores.possible("roc_auc", edges, mass) == pytest.approx((surely - 0.01 * near, surely + tied + 0.01 * near))
    # at the ends of bins cumulative sums lie between those with all scores at the bins' ends
    gaps = np.array([np.cumsum(yes - (no + yes) * end) for end in (high, low)])
    inner = max(gaps[0].max(), -gaps[1].min(), 0.0) / rows
    ends = np.concatenate([[0.0], np.abs(gaps).max(axis=0)])
    outer = max(max(a, b) + both for a, b, both in zip(ends, ends[1:], no + yes, strict=False)) / rows
    assert scores.possible("ecce", edges, mass) == pytest.approx((inner, outer))


def test_the_area_of_one_outcome_may_be_anything():
    for mass in ([(0.0, 1.0), (0.0, 3.0)], [(2.0, 0.0), (1.0, 0.0)]):
        assert scores.possible("roc_auc", [0.0, 0.5, 1.0], mass) == (0.0, 1.0)
    uneven = scores.possible("calibration_in_the_large", [0.0, 0.2, 1.0], [(1.0, 0.0), (0.0, 0.0)])
    assert uneven == pytest.approx((0.0, 0.208))  # a cell reaches a hundredth of the widest bin over


def chart(**changes):
    groups = (group_of("a", 6, 0.5), group_of("b", 4, 0.5))
    told = {"auditor": "group", "metric": "roc_auc_difference", "value": 0.0, "sensitive": "sex", "groups": groups,
            "evidence": {"score_edges": [0.0, 0.5, 1.0], "score_counts": [2, 1, 1, 2, 1, 1, 1, 1]}}  # fmt: skip
    return Finding(**(told | changes))


def test_histograms_are_read_by_group():
    edges, masses = scores._histograms(chart())
    assert edges == [0.0, 0.5, 1.0]
    assert masses == {"a": [(2.0, 1.0), (1.0, 2.0)], "b": [(1.0, 1.0), (1.0, 1.0)]}
    told = {"edges": [0.0, 1.0], "groups": {"a": [[1, 2]], "b": [[3, 4]]}}
    assert scores._histograms(chart(evidence={"histogram": told})) == (
        [0.0, 1.0],
        {"a": [(1.0, 2.0)], "b": [(3.0, 4.0)]},
    )
    plain = chart().evidence
    for unread in (
        {"auditor": "why"},
        {"groups": ()},
        {"evidence": {}},
        {"evidence": plain | {"score_counts": [1] * 7}},
        {"evidence": plain | {"score_edges": [-0.1, 0.5, 1.0]}},
        {"evidence": plain | {"score_edges": [0.0, 0.5, 1.1]}},
        {"evidence": {"score_edges": [0.0, 0.5, 1.0]}},
        {"evidence": {"score_counts": [1] * 8}},
    ):
        assert scores._histograms(chart(**unread)) is None


def test_numbers_of_scores_lie_within_what_the_chart_leaves(report):
    def check(value, metric="roc_auc", weighted=False, denominator=None, **changes):
        groups = (group_of("a", 6, value, None, denominator), group_of("b", 4, None))
        own = rate(f"{metric}_difference", **changes)
        own = replace(own, groups=groups, value=None)
        some = replace(chart(), metric="statistical_parity_ks")
        return list(scores.check_scores(of(report, some, own), weighted=weighted))

    low, high = scores.possible("roc_auc", [0.0, 0.5, 1.0], [(2.0, 1.0), (1.0, 2.0)])
    assert 0 < low < high < 1
    slack = scores.DIGITS
    for value in (low, high, low - 0.9 * slack, high + 0.9 * slack):
        assert check(value) == []
    for value in (low - 1.1 * slack, high + 1.1 * slack):
        assert check(value) == [f"roc_auc of group a of sex is {value:g}, and its chart leaves [{low:.4g}, {high:.4g}]"]
    assert check(None) == []
    for unread in ({"auditor": "why"}, {"sensitive": "age"}, {"parameters": {"class": "x"}}):
        assert check(0.0, **unread) == []
    assert check(0.5, "true_positive_rate", denominator=3.0) == []
    assert check(0.5, "true_positive_rate", denominator=3.5) == []
    assert check(0.5, "true_positive_rate", denominator=2.5) == []
    assert check(0.5, "true_positive_rate", denominator=3.6) == [
        "true_positive_rate of group a of sex is over 3.6 rows, and its chart has 3 positives"
    ]
    assert check(0.5, "true_positive_rate", denominator=3.6, weighted=True) == []
    assert check(0.5, "true_positive_rate") == []


def test_positives_of_many_rows_may_be_off_by_the_charts_digits(report):
    counted = {"score_edges": [0.0, 1.0], "score_counts": [10_000, 20_000, 1, 1]}
    some = replace(chart(), metric="statistical_parity_ks", evidence=counted)

    def check(over):
        own = replace(rate("true_positive_rate_difference"), groups=(group_of("a", 30_000, 0.5, None, over),))
        return list(scores.check_scores(of(report, some, own), weighted=False))

    assert check(20_001.9) == []
    assert len(check(20_002.1)) == 1
    assert len(check(19_997.9)) == 1


# conditions


def conditional(**changes):
    """A finding against a reference inside strata."""
    groups = (group_of("g1", 100, 0.25, (0.1, 0.4)),)
    told = {
        "auditor": "group",
        "metric": "accuracy_difference",
        "value": 0.25,
        "sensitive": "sex",
        "interval": (0.1, 0.4),
        "better": "lower",
        "groups": groups,
        "reference": "g0",
        "confidence": 0.95,
    }
    return Finding(**(told | changes))


DATA = {"reference": ["sex=g0"], "within": ["age:25:60+d"]}


def told_by(report, finding, data=DATA, **more):
    return list(conditions.check_condition(finding, of(report, finding, **more), data))


def test_a_condition_is_one_that_the_settings_have(report):
    assert told_by(report, conditional()) == []
    assert told_by(report, conditional(), {"reference": ["age=x", "sex=g0"]}) == []
    for data in ({}, {"reference": ["sexual=g0"]}, {"reference": ["age=x"]}):
        assert told_by(report, conditional(), data) == ["the settings name no reference group of sex"]
    assert told_by(report, conditional(within=("age", "d"))) == []
    assert told_by(report, conditional(within=("age",))) == ["the settings name no strata of age"]
    own = conditional(within=("question",), parameters={"strata": "question"})
    assert told_by(report, own) == []
    assert "the data have no groups of 'race'" in told_by(report, conditional(sensitive="race"))
    proxy = conditional(sensitive="race", reference=None, parameters={"probabilities": "x"})
    assert told_by(report, proxy) == ["the settings name no group probabilities for it"]
    assert told_by(report, proxy, {"sensitive_probability": ["race=p,q"]}) == []
    assert told_by(report, conditional(confidence=0.9)) == ["its confidence is 0.9, the audit's is 0.95"]
    assert told_by(report, conditional(interval=(0.3, 0.4)))
    odd = conditional(groups=(group_of("g1", 100, 0.25, (0.3, 0.4)),))
    assert told_by(report, odd)[0].startswith("group g1: its value 0.25 lies outside")
    stratum = stratum_of("x", 10, 0.25, (0.3, 0.4))
    assert "stratum x: its value" in "".join(told_by(report, conditional(strata=(stratum,))))


def test_differences_from_a_reference_are_those_of_the_groups(report):
    plain = rate(values=(0.5, 0.75), ends=(None, None))

    def check(finding, *others):
        data = of(report, finding, *others)
        return list(conditions.check_condition(finding, data, DATA))

    assert check(conditional(), plain) == []
    wrong = conditional(value=0.3, groups=(group_of("g1", 100, 0.3),), interval=None)
    assert check(wrong, plain) == ["group g1 differs by 0.3, and the groups' own numbers by 0.25"]
    assert check(wrong) == []
    assert check(replace(wrong, within=("age", "d")), plain) == []
    assert check(replace(wrong, metric="accuracy_ratio"), replace(plain, metric="accuracy_ratio")) == []
    for other in ({"metric": "precision_difference"}, {"sensitive": "age"}, {"parameters": {"class": "x"}}):
        assert check(wrong, replace(plain, **other)) == []
    assert check(wrong, rate(values=(None, 0.75), ends=(None, None), value=None)) == []
    assert check(wrong, rate(values=(0.5, None), ends=(None, None), value=None)) == []
    assert "its reference 'g7' is no group of the data" in check(conditional(reference="g7"))
    assert "its value is 0.3, and no group has it" in check(conditional(value=0.3))
    assert check(conditional(value=None, interval=None)) == []


def test_a_pooled_number_lies_among_its_strata(report):
    strata = tuple(stratum_of(f"s{i}", 100, v) for i, v in enumerate((0.1, 0.3)))

    def check(value, some=strata, told=2, **more):
        finding = conditional(value=value, interval=None, reference=None, groups=(), strata=some,
                              within=("age", "d"), evidence={"strata": told})  # fmt: skip
        return told_by(report, finding, **more)

    for value in (0.1, 0.2, 0.3, 0.1 - EPS / 2, 0.3 + EPS / 2):
        assert check(value) == []
    for value in (0.1 - 1e-6, 0.3 + 1e-6):
        assert check(value) == [f"its value {value:g} lies outside those of its strata, [0.1, 0.3]"]
    assert check(0.9, told=3) == []  # some strata are left out of the statement
    assert check(None) == []
    assert check(0.2, rows=199) == ["its strata have 200 rows, the data have 199"]
    parts = (group_of("g0", 60, 0.1), group_of("g1", 40, 0.2))
    with_groups = (replace(strata[0], groups=parts), strata[1])
    assert check(0.2, with_groups) == []
    fewer = (replace(strata[0], groups=parts[:1]), strata[1])
    assert check(0.2, fewer) == ["the groups of stratum s0 do not have its 100 rows"]


def test_the_interval_of_a_proxy_holds_what_is_possible(report):
    def check(low, high, possible=(0.1, 0.4), **more):
        finding = conditional(value=0.25, interval=(low, high), reference=None, parameters={"probabilities": "x"},
                              evidence={"identified_set": possible}, **more)  # fmt: skip
        return told_by(report, finding, {"sensitive_probability": ["sex=p,q"]})

    assert check(0.1, 0.4) == []
    assert check(0.1 + 5e-10, 0.4 - 5e-10) == []
    assert check(0.1 + 5e-9, 0.4)
    assert check(0.1, 0.4 - 5e-9)
    assert check(0.2, 0.3, (0.1, 0.4, 0.5)) == []
    assert check(0.2, 0.3, "x") == []
    assert check(0.2, 0.3) == ["its interval [0.2, 0.3] is narrower than what is possible, [0.1, 0.4]"]


# numbers


def test_a_number_lies_inside_its_interval():
    check = lambda value, interval: list(numbers.check_place(value, interval))  # noqa: E731 -- short
    assert check(0.5, (0.5, 0.5)) == []
    assert check(None, None) == []
    assert check(0.5, None) == []
    assert check(0.5, (0.5 + EPS / 2, 0.6)) == []
    assert check(0.5, (0.4, 0.5 - EPS / 2)) == []
    assert check(0.5, (0.5 + 3 * EPS, 0.6))
    assert check(0.5, (0.4, 0.5 - 3 * EPS))
    assert check(math.inf, (0.0, 1.0)) == ["its value inf is not finite"]
    assert check(math.nan, None) == ["its value nan is not finite"]
    for ends in ((0.6, 0.4), (math.nan, 0.6), (0.4, math.nan)):
        assert "is reversed" in check(0.5, ends)[0]
    assert check(None, (0.1, 0.2)) == ["it has an interval [0.1, 0.2] and no value"]


def test_a_number_lies_in_the_range_of_its_metric(report):
    def check(finding, auditors=frozenset(), **more):
        return list(numbers.check_number(finding, of(report, finding, **more), auditors))

    assert check(rate()) == []
    assert check(rate(better="higher")) == ["it says that higher is better; for accuracy_difference it is lower"]
    assert check(rate(value=1 + EPS / 2)) == []
    assert len(check(rate(value=1.1))) == 1
    assert len(check(rate(value=-0.1))) == 1
    assert len(check(rate(values=(1.2, 0.5), ends=(None, None), value=0.7))) == 1
    beyond = replace(rate(), missing=group_of("missing", 3, -0.5))
    assert check(beyond) == ["the value of group missing -0.5 lies outside the range [0, 1] of the metric"]
    assert check(rate(interval=(-0.1, 0.5))) == ["its interval [-0.1, 0.5] leaves the range [0, 1] of the metric"]
    assert check(rate(interval=(0.1, 1.5)))
    assert check(rate(rows=(201, 100))) == ["group g0 has 201 rows, the data have 200"]
    assert check(rate(rows=(200, 100))) == []
    assert check(rate(confidence=0.9)) == ["its confidence is 0.9, the audit's is 0.95"]
    assert check(rate(), frozenset({"group"})) == []
    assert check(rate(), frozenset({"why", "dif"})) == [
        "the auditor 'group' is not one of those in the settings (dif, why)"
    ]
    assert check(replace(rate(), auditor="why", better="higher")) == [
        "it is a metric of the auditor 'group', not of 'why'"
    ]
    other = replace(rate("performance_gap"), groups=())
    assert check(other) == ["it is a metric of the auditor 'restricted-dro', not of 'group'"]
    assert check(replace(other, auditor="restricted-dro")) == []
    assert check(replace(other, metric="unknown")) == []
    for metric, owner in (("subgroup_difference", "subgroups"), ("all_inputs_flip", "all-inputs")):
        forged = replace(other, metric=metric, auditor="house")
        assert check(forged) == [f"it is a metric of the auditor {owner!r}, not of 'house'"]


def test_an_upper_bound_is_a_number_above_the_value():
    def check(bound, value=0.2, auditor="dif", **more):
        finding = replace(rate(value=value), auditor=auditor, evidence={"upper_confidence_bound": bound, **more})
        return list(numbers._bounds(finding))

    assert check(0.2) == []
    assert check(0.2 - EPS / 2) == []
    assert check(0.2 - 3 * EPS) == ["its upper_confidence_bound 0.2 is below its value 0.2"]
    assert check(0.2, value=None) == []
    assert check(0.3, auditor="group") == ["it has an upper_confidence_bound, which no group metric has"]
    for bound in (True, "0.3", math.inf, math.nan):
        assert "is no number" in check(bound)[0]
    assert check(0.3, lower_bound=0.3) == []
    assert check(0.3, lower_bound=0.3 + EPS / 2) == []
    assert len(check(0.3, lower_bound=0.31)) == 1
    assert check(0.3, lower_bound=True) == []
    assert check(0.3, lower_bound="1") == []
    assert list(numbers._bounds(rate())) == []


def test_evidence_of_unknowns_has_its_form():
    from fairkit.results.policy import UNKNOWNS

    whole_form = {"low": 0.1, "high": 0.2, "binding": True, "reason": "x", "stretch": 1.0}
    for name in UNKNOWNS:

        def check(bounds, name=name):
            return list(numbers.check_unknowns(rate(evidence={name: bounds})))

        assert check(whole_form) == []
        assert check(whole_form | {"low": None, "high": None}) == []
        assert check(3) == [f"its {name} are no bounds"]
        for key, value in (("low", None), ("high", True), ("binding", 1), ("reason", None), ("stretch", "1"),
                           ("stretch", math.inf), ("low", "x")):  # fmt: skip
            assert check(whole_form | {key: value}) == [f"its {name} lack a number, a reason or whether they bind"]
    assert list(numbers.check_unknowns(rate())) == []


def test_evidence_of_rows_nearby_has_its_form():
    names = ["rows", *(f"{name}{end}" for name in ("here", "nearby", "change") for end in ("", "_low", "_high"))]
    form = dict.fromkeys(names, 0.5)
    assert list(numbers.check_nearby(rate(evidence={"nearby": form}))) == []
    assert list(numbers.check_nearby(rate())) == []
    for name in names:
        assert list(numbers.check_nearby(rate(evidence={"nearby": form | {name: None}})))
    assert list(numbers.check_nearby(rate(evidence={"nearby": 3})))


# classes


def of_class(label, values=(0.5, 0.75), ends=((0.4, 0.6), (0.7, 0.85)), **changes):
    return rate("true_positive_rate_difference", values, ends=ends, parameters={"class": label}, **changes)


def test_gaps_over_classes_follow_from_the_classes(report):
    some = [of_class("a"), of_class("b", (0.5, 0.4), ((0.3, 0.6), (0.35, 0.5)))]
    half = [max(math.hypot(0.1, 0.1), math.hypot(0.1, 0.05)), max(math.hypot(0.2, 0.1), math.hypot(0.1, 0.05))]
    value = {"class_gap_max": 0.25, "class_gap_mean": 0.175, "class_gap_rms": math.sqrt((0.25**2 + 0.1**2) / 2)}
    upper = {
        "class_gap_max": 0.1 + half[1] if 0.1 + half[1] > 0.25 + half[0] else 0.25 + half[0],
        "class_gap_mean": value["class_gap_mean"] + math.hypot(*half) / 2,
        "class_gap_rms": value["class_gap_rms"] + max(half) / math.sqrt(2),
    }

    def check(name, classes_of=some, dependent=False, **changes):
        told = {"value": value[name], "interval": (0.0, upper[name])}
        finding = replace(rate(name), groups=(), **(told | changes))
        return list(classes.check_classes(of(report, finding, *classes_of), dependent=dependent))

    for name, right in value.items():
        assert check(name) == [], name
        assert len(check(name, value=right + 1e-6)) == 1
        assert check(name, interval=(0.0, upper[name] - 9e-7)) == []
        assert check(name, interval=(0.0, min(1.0, upper[name]) - (1e-6 + EPS))) == []  # as much as is allowed
        assert len(check(name, interval=(0.0, upper[name] - 3e-6))) == 1
        assert check(name, interval=(0.0, 0.2), dependent=True) == []
        assert check(name, interval=None) == []
        assert check(name, value=None) == []
        assert check(name, auditor="why", value=0.9) == []
        assert check(name, []) == [f"{name} of sex has a value, and no class has one"]
        assert check(name, [replace(one, sensitive="age") for one in some])
        few = [replace(some[0], inconclusive="few rows"), some[1]]
        assert len(check(name, few)) == (name == "class_gap_max")
        assert check(name, few, inconclusive="few rows") == []
        doubtful = [some[0], replace(some[1], inconclusive="its interval is not trusted")]
        assert check(name, doubtful) == [f"{name} of sex is not marked as inconclusive, and that of the class b is"]


def test_gaps_over_classes_are_the_largest_over_pairs(report):
    ends = ((0.0, 1.0),) * 3
    some = [
        of_class("a", (0.5, 0.75, 0.5), ends),
        of_class("b", (0.1, 0.1, 0.9), ends),
        of_class("c", (None, 0.1, 0.3), ends),
    ]
    finding = replace(rate("class_gap_mean"), groups=(), value=1.25 / 3, interval=None)
    assert list(classes.check_classes(of(report, finding, *some), dependent=False)) == []
    assert classes.over("class_gap_mean", [0.25, 0.5, 0.0]) == pytest.approx(0.25)
    ends = ((0.0, 1.0),) * 2
    capped = replace(rate("class_gap_max"), groups=(), value=0.25, interval=(0.0, 1.0))
    assert list(classes.check_classes(of(report, capped, of_class("a", ends=ends)), dependent=False)) == []


# the whole statement


def test_what_compares_two_groups_has_groups_of_the_data(report):
    def check(**changes):
        told = {"reference": "g0", "groups": (group_of("g1", 100, 0.25),), "auditor": "why", "metric": "attribution",
                "parameters": {}, "value": 0.25}  # fmt: skip
        finding = replace(rate(), **(told | changes))
        return list(_compared(finding, of(report, finding), frozenset()))

    assert check() == []
    assert check(reference=None, groups=(group_of("x", 900, 0.1),)) == []
    assert "the data have no group 'g7' of sex" in check(reference="g7")
    assert "the data have no group 'g8' of sex" in check(groups=(group_of("g8", 0, 0.25),))
    assert check(groups=(group_of("g1", 101, 0.25),)) == ["group g1 has 101 rows, the data have 100 of it"]


def test_nothing_stands_there_twice(report):
    assert list(_twice(of(report, rate(), rate("accuracy_ratio"), rate(parameters={"class": "a"})))) == []
    (text,) = _twice(of(report, rate(), rate(value=0.9)))
    assert text == "group/accuracy_difference/sex is in it 2 times"


def test_the_outcome_is_that_of_the_settings(report):
    named = replace(report, data=replace(report.data, label="y", favorable="1"))
    assert list(_outcome(named, {"label": "y", "favorable": 1})) == []
    assert list(_outcome(named, {"label": "z", "favorable": 1})) == ["the settings have the label z, the report y"]
    assert list(_outcome(named, {"label": "y"})) == ["the settings have the favorable None, the report 1"]
    older = replace(report, data=replace(report.data, label=None, favorable=None))
    assert list(_outcome(older, {"label": "z"})) == []


def test_facts_follow_from_the_ranges_of_metrics():
    known = facts()
    assert (known["accuracy"].low, known["accuracy"].high, known["accuracy"].kind) == (0.0, 1.0, "value")
    wide = known["calibration_in_the_large_difference"]
    assert (wide.low, wide.high, wide.base, wide.kind) == (0, 2, "calibration_in_the_large", "difference")
    assert known["mean_squared_error_difference"].high == math.inf
    ratio = known["demographic_parity_ratio"]
    assert (ratio.low, ratio.high, ratio.better, ratio.base) == (0, 1, "higher", "selection_rate")
    assert (known["accuracy_group_min"].kind, known["accuracy_group_max"].kind) == ("smallest", "largest")
    for name in ("equalized_odds_difference", "class_gap_rms", "statistical_parity_ks"):
        assert (known[name].low, known[name].high, known[name].better) == (0, 1, "lower")
    assert (known["equalized_odds_ratio"].low, known["equalized_odds_ratio"].high) == (0, 1)
    assert (known["worst_group_loss"].low, known["worst_group_loss"].high) == (0, math.inf)
