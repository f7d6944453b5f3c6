"""The search against brute force: a mask for every group, every metric, weights and missing values."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from fairkit.data.arrow_types import as_numpy
from fairkit_subgroups.searching.cells import Family, Tallies, fill, make_cells, tally_column
from fairkit_subgroups.searching.local_search import Bounds, Search, Surest
from fairkit_subgroups.searching.measures import MEASURES, values_of, width_of
from fairkit_subgroups.searching.tables import count

SHARE, LEAST, BINS = 0.05, 10, 4


def draw(rng, n, *, weighted=False, soft=False):
    """A table with ties, heavy values, rare texts and gaps."""
    columns = {
        "number": rng.integers(0, 9, n).astype(float),
        "heavy": np.where(rng.random(n) < 0.7, 0.0, rng.integers(1, 60, n).astype(float)),
        "text": rng.choice(np.array(["a", "b", "c", "rare"], dtype=object), n, p=[0.5, 0.3, 0.18, 0.02]),
        "real": rng.normal(size=n),
    }
    columns["number"][rng.random(n) < 0.1] = np.nan
    columns["text"][rng.random(n) < 0.1] = None
    names = list(columns)[: int(rng.integers(1, 5))]
    arrow = {
        name: pa.array(columns[name], from_pandas=True) if columns[name].dtype == object else pa.array(columns[name])
        for name in names
    }
    outcome = (rng.random(n) < 0.4).astype(float)
    decision = rng.random(n) if soft else (rng.random(n) < 0.5).astype(float)
    score = rng.random(n)
    weights = rng.integers(0, 4, n) / 3 if weighted else None
    return columns, arrow, outcome, decision, score, weights


def search_of(arrow, outcome, decision, score, weights, measure, *, soft, depth=3):
    n = len(outcome)
    tallies = Tallies({name: tally_column(column) for name, column in arrow.items()}, n)
    columns, _ = make_cells(tallies, n, share=SHARE, bins=BINS, edges={})
    family = Family(tuple(columns), depth)
    weighted = weights is not None
    name = measure.statistic(soft or weighted)
    values = values_of(name, outcome, decision, score, (outcome - score) ** 2, weights)
    width = width_of(name, weighted=weighted)
    tables = count(family, family.encode(arrow), np.zeros(n, np.int64), {name: values}, {name: width}, 1)
    return Search(family, measure, tables[name], weighted, soft or weighted, SHARE * n, LEAST)


def holds(condition, values):
    """Whether rows fulfil a condition as it stands in a report."""
    missing = np.array([v is None or v != v for v in values])  # noqa: PLR0124 -- NaN
    if "value" in condition:
        wanted = condition["value"]
        return missing if wanted is None else np.array([v == wanted for v in values])
    keep = ~missing
    low, high = condition["low"], condition["high"]
    with np.errstate(invalid="ignore"):
        if low is not None:
            keep &= np.asarray(values >= low)
        if high is not None:
            keep &= np.asarray(values <= high)
    return keep


def every_group(search, columns, n, base):
    """All conjunctions by their masks, large enough or not."""
    found = {}
    for depth in range(1, search.family.depth + 1):
        for chosen in itertools.combinations(search.family.columns, depth):
            for runs in itertools.product(*(column.literals for column in chosen)):
                conditions = [column.condition(run) for column, run in zip(chosen, runs, strict=True)]
                mask = np.all([holds(one, columns[one["column"]]) for one in conditions], axis=0)
                inside = int((mask & base).sum())
                if mask.sum() >= SHARE * n and inside >= LEAST and int(base.sum()) - inside >= LEAST:
                    found[str(conditions)] = mask
    return found


def numbers(measure, mask, outcome, decision, score, weights):
    """Rate (or outcome rate) inside, what it is compared with."""
    w = np.ones(len(outcome)) if weights is None else weights
    if measure.kind == "residual":
        return np.average(outcome[mask], weights=w[mask]), np.average(score[mask], weights=w[mask])
    if measure.kind == "loss":
        each, over = (outcome - score) ** 2, np.ones(len(outcome), dtype=bool)
    else:
        each = {
            "selection_rate": decision,
            "true_positive_rate": decision,
            "false_positive_rate": decision,
            "error_rate": np.where(outcome > 0, 1 - decision, decision),
        }[measure.name]
        over = {"true_positive_rate": outcome > 0, "false_positive_rate": outcome == 0}.get(
            measure.name, np.ones(len(outcome), dtype=bool)
        )
    return tuple(np.average(each[m & over], weights=w[m & over]) for m in (mask, ~mask))


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_every_group_and_number_is_that_of_its_mask(part):
    rng = np.random.default_rng(part)
    compared = 0
    for number in range(50):
        soft, weighted = number % 3 == 1, number % 4 == 2
        n = int(rng.integers(60, 300))
        columns, arrow, outcome, decision, score, weights = draw(rng, n, weighted=weighted, soft=soft)
        measure = list(MEASURES.values())[number % len(MEASURES)]
        search = search_of(arrow, outcome, decision, score, weights, measure, soft=soft, depth=2 + number % 2)
        if not search.family.columns:
            continue
        base = np.ones(n, dtype=bool) if weights is None else weights > 0
        base &= {"true_positive_rate": outcome > 0, "false_positive_rate": outcome == 0}.get(measure.name, base)
        counted = np.ones(n, dtype=bool) if weights is None else weights > 0
        kept = {name: columns[name] for name in arrow}
        wanted = {
            key: mask for key, mask in every_group(search, kept, n, base).items() if (mask & counted).sum() >= SHARE * n
        }
        seen = {}
        for some in search.all_groups():
            sides = search.sides(some)
            for place in range(len(some.numbers)):
                key = str(search.family.conditions(int(some.tables[place]), int(some.numbers[place])))
                assert key not in seen
                seen[key] = (sides.p[place], sides.rest[place], sides.rows[place])
        assert seen.keys() == wanted.keys()
        assert search.groups == len(wanted)
        for key, mask in wanted.items():
            inside, against = numbers(measure, mask, outcome, decision, score, weights)
            assert seen[key] == pytest.approx((inside, against, (mask & counted).sum()), abs=1e-7)
            compared += 1
    assert compared > 1000


def mover(k, n, other_k, other_n, alpha):
    """The difference's limits, with scipy's own beta distribution."""
    from scipy.stats import beta

    def limits(k, n):
        low = beta.ppf(alpha / 2, k, n - k + 1) if k else 0.0
        high = beta.isf(alpha / 2, k + 1, n - k) if k < n else 1.0
        return low, high

    (low, high), (other_low, other_high) = limits(k, n), limits(other_k, other_n)
    p, q = k / n, other_k / other_n
    return p - q - np.hypot(p - low, other_high - q), p - q + np.hypot(high - p, q - other_low)


@pytest.mark.long
def test_the_most_extreme_groups_are_those_of_all_exact_limits():
    rng = np.random.default_rng(7)
    for number in range(12):
        n = 300
        columns, arrow, outcome, decision, score, _ = draw(rng, n)
        measure = MEASURES["true_positive_rate"]
        worse = np.array([v == "b" for v in columns["text"]]) & (rng.random(n) < 0.7)
        decision[worse] = 0
        search = search_of(arrow, outcome, decision, score, None, measure, soft=False)
        if not search.groups:
            continue
        alpha = 0.05 / search.groups if number % 2 else 0.05
        shares = [SHARE, 0.1, 0.3]
        everything = []
        for some in search.all_groups():
            for place in range(len(some.numbers)):
                rows, base, k = some.sums[:, place]
                _, all_base, all_k = search.totals[0]
                low, high = mover(k, base, all_k - k, all_base - base, alpha)
                everything.append((rows, max(low, -1), min(high, 1)))
        trackers = [Surest(0), Surest(-1, most=3), Bounds(shares, n)]
        search.look(alpha, trackers)
        surest = [tracker.result(search, alpha) for tracker in trackers[:2]]
        both = max(max(low, -high) for _, low, high in everything)
        assert [one.surely for one in surest[0]] == pytest.approx([both] if both > 0 else [])
        lower = sorted((-high for _, _, high in everything if high < 0), reverse=True)[:3]
        assert [-one.high for one in surest[1]] == pytest.approx(lower)
        for share, one in zip(shares, trackers[2].result(search, alpha), strict=True):
            sizes = [max(high, -low) for rows, low, high in everything if rows >= share * n]
            assert (one is None) == (not sizes)
            if one is not None:
                assert one.at_most == pytest.approx(max(sizes))


def test_cells_are_filled_as_described():
    # the capital gains of Adult: a value with a share of the rows is a cell, what is rare joins its neighbour
    counts = np.array([920, 5, 5, 5, 5, 60])
    assert fill(counts, 1000, 0.01, 4).tolist() == [0, 1]
    assert fill(np.array([920, 40, 40]), 1000, 0.01, 8).tolist() == [0, 1, 2]
    assert fill(np.array([920, 76, 4]), 1000, 0.01, 8).tolist() == [0, 1]
    even = fill(np.full(100, 10), 1000, 0.01, 8)
    assert even.tolist() == [0, 13, 26, 39, 52, 65, 78, 91]
    assert fill(np.array([5]), 5, 0.01, 8).tolist() == [0]


def test_a_column_of_many_numbers_is_counted_alike_in_any_order():
    rng = np.random.default_rng(3)
    values = np.round(rng.lognormal(8, 2, 90_000), 3) * rng.choice([-1.0, 1.0], 90_000)
    parts = [pa.array(part) for part in np.array_split(values, 7)]
    forward, backward = tally_column(parts[0]), tally_column(parts[-1])
    for part in parts[1:]:
        forward = forward + tally_column(part)
    for part in parts[-2::-1]:
        backward = backward + tally_column(part)
    assert forward.dropped > 0
    assert np.array_equal(forward.values, backward.values)
    assert np.array_equal(forward.counts, backward.counts)
    assert forward.counts.sum() == 90_000
    columns, _ = make_cells(Tallies({"x": forward}, 90_000), 90_000, share=0.01, bins=8, edges={})
    sizes = np.bincount(columns[0].encode(pa.array(values)))
    assert len(sizes) == 8
    assert sizes.min() > 0.8 * 90_000 / 8


def test_codes_agree_with_conditions():
    rng = np.random.default_rng(11)
    _, arrow, *_ = draw(rng, 300)
    tallies = Tallies({name: tally_column(column) for name, column in arrow.items()}, 300)
    for column in make_cells(tallies, 300, share=SHARE, bins=BINS, edges={})[0]:
        codes = column.encode(arrow[column.name])
        values = as_numpy(arrow[column.name])
        for low, high in column.literals:
            assert np.array_equal(holds(column.condition((low, high)), values), (codes >= low) & (codes <= high))
