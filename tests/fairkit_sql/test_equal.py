"""What a database counts is what the rows say: counts exactly, sums within 1e-9, and every interval made from them."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fairkit
from fairkit.engines.local import Doubled
from fairkit_sql.counted import SqlEngine

from .shared import LABELLED, assert_equal, both, database, people

pytest.importorskip("ibis", reason="needs the extra fairkit[sql]")
pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")

SETTINGS = {
    "decisions in groups, and rows in none": {"sensitive": ["sex", "race"], "predictions": {"decision": "offered"}},
    "missing values as a group": {"sensitive": ["sex"], "missing": "group", "predictions": {"decision": "offered"}},
    "small groups": {"sensitive": ["sex+race"], "counts_from": 450, "predictions": {"decision": "offered"}},
    "bins that are chosen and bins that are named": {
        "sensitive": ["age", "sex+age:30:50", "race"],
        "predictions": {"decision": "offered"},
    },
    "strata, a reference and weights": {
        "sensitive": ["sex", "race"],
        "within": ["office"],
        "reference": ["sex=m", "race=@largest"],
        "weights": "weight",
        "predictions": {"decision": "offered"},
    },
    "scores that decide": {"sensitive": ["sex"], "within": ["office"], "predictions": {"score": "score"}},
    "scores with weights": {"sensitive": ["race"], "weights": "weight", "predictions": {"score": "score"}},
    "scores beside decisions": {"sensitive": ["sex"], "predictions": {"score": "score", "decision": "offered"}},
    "chances of decisions": {"sensitive": ["sex"], "predictions": {"probability": "chance"}},
    "probabilities of groups": {
        "sensitive": [],
        "sensitive_probability": ["race=p_white,p_black"],
        "predictions": {"decision": "offered"},
    },
    "classes": {"label": "level", "favorable": None, "sensitive": ["sex"], "predictions": {"class": "guess"}},
    "numbers": {"label": "paid", "favorable": None, "sensitive": ["sex"], "predictions": {"prediction": "expected"}},
    "no label": {"label": None, "favorable": None, "sensitive": ["sex"], "predictions": {"decision": "offered"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return database(tmp_path_factory.mktemp("sql"), people())


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_findings_are_those_of_the_rows(address, name):
    read, counted = both(address, **{**LABELLED, **SETTINGS[name]})
    assert_equal(read, counted)
    assert not counted.warnings or counted.warnings == read.warnings
    assert counted.data.source["counts"]["distinct"] < counted.data.rows


def test_subgroups_are_those_of_the_rows(tmp_path):
    table = people()
    address = database(tmp_path, table.filter(table["hired"].is_valid()))
    chosen = {"columns": ["sex", "race", "age"], "metrics": ["selection_rate", "error_rate"]}
    audit = {"auditors": ["subgroups"], "parameters": {"subgroups": chosen}}
    roles = {**LABELLED, "sensitive": ["sex", "age:40"], "predictions": {"decision": "offered"}}
    read, counted = both(address, audit, **roles)
    assert_equal(read, counted)


@pytest.mark.long
@pytest.mark.parametrize("times", [2, 20])
def test_a_table_of_copies_gets_no_verdict_from_them(tmp_path, times):
    """Each row so many times makes all counts its multiples, whichever columns the audit reads."""
    table = people(700)
    table = table.filter(table["hired"].is_valid())
    address = database(tmp_path, pa.concat_tables([table] * times))
    roles = {**LABELLED, "sensitive": ["sex"], "predictions": {"score": "score"}}
    policy = [fairkit.Rule(metric="demographic_parity_difference", sensitive="sex", max=0.02)]
    _, once = both(database(tmp_path, table, "once.db"), {"policy": policy}, **roles)
    _, counted = both(address, {"policy": policy}, **roles)
    assert not any("copies of others:" in text for text in once.warnings)
    assert any("copies of others:" in text for text in counted.warnings)
    assert once.verdict == counted.verdict == "inconclusive"


@pytest.mark.long
@pytest.mark.parametrize("column", ["team", "crew"])
def test_clusters_fall_into_other_buckets_and_give_the_same_numbers(address, column):
    """The buckets come from a hash that is keyed with another digest: intervals differ by that draw alone."""
    roles = {**LABELLED, "sensitive": ["sex"], "predictions": {"score": "score"}, "cluster": column}
    read, counted = both(address, **roles)
    assert read.data.clusters == counted.data.clusters
    for one, other in zip(read.findings, counted.findings, strict=True):
        assert (one.value is None) == (other.value is None)
        if one.value is not None:
            assert one.value == pytest.approx(other.value, abs=1e-9)
        if one.interval is not None and one.metric == "selection_rate_difference":
            widths = [high - low for low, high in (one.interval, other.interval)]
            assert widths[0] == pytest.approx(widths[1], rel=0.25)


def test_buckets_of_whole_numbers_and_text_are_even():
    """Each bucket gets its share of 200,000 ids: the largest of 1,024 stays within six standard errors."""
    import duckdb
    import ibis

    from fairkit.data.hashing import BUCKETS, buckets_of
    from fairkit_sql.cells import bucket_of, compiled, standing_for

    ids = ibis.table({"a": "int64", "b": "string"}, name="ids")
    given = pa.table({"a": np.arange(-100_000, 100_000), "b": np.arange(200_000).astype(str)})
    with duckdb.connect() as connection:
        connection.register("ids", given)
        for column, key in itertools.product("ab", (1, 2**63 + 5)):
            asked = compiled(ids.select(bucket=bucket_of(ids[column], key, "duckdb")), "duckdb")
            found = connection.sql(asked).to_arrow_table().column("bucket")
            standing = standing_for(found, key)
            places = buckets_of(standing.combine_chunks(), key)
            counts = np.bincount(places, minlength=BUCKETS)
            assert np.abs(counts - 200_000 / BUCKETS).max() < 6 * np.sqrt(200_000 / BUCKETS)


@pytest.mark.long
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(200, 900), values=st.integers(2, 6))
def test_tables_at_random(tmp_path_factory, seed, rows, values):
    rng = np.random.default_rng(seed)
    groups = np.array([f"g{number}" for number in range(values)])
    table = pa.table(
        {
            "group": pa.array(rng.choice([*groups, None], rows).tolist(), pa.string()),
            "hired": pa.array(rng.integers(0, 2, rows)),
            "offered": pa.array(rng.integers(0, 2, rows)),
            "weight": pa.array(np.round(rng.gamma(2, 1, rows), 1)),
            "site": pa.array(rng.choice(["x", "y"], rows).tolist()),
        }
    )
    address = database(tmp_path_factory.mktemp("random"), table)
    roles = {"label": "hired", "favorable": 1, "sensitive": ["group"], "within": ["site"], "weights": "weight"}
    assert_equal(*both(address, **roles, predictions={"decision": "offered"}))


def test_counts_are_doubled_and_added():
    assert Doubled((1.0, None, 1.0, 0.0)).total() == 8 + 2
    assert Doubled((["a"], ["b"])).total() == ["a", "b"]
    assert Doubled((None, None)).total() is None
    assert Doubled(((1, 5), (1, 7))).derive(lambda pair, place: pair[place], 1).total() == 2 * 5 + 7


class Above(fairkit.Metric):
    """The share of scores above a half, as a plugin of somebody else would have it."""

    name = "share_above"
    better = "higher"
    needs = frozenset({"score"})
    outcome = False
    range = (0.0, 1.0)

    def compute(self, sums):
        return sums[:, 1] / sums[:, 0]

    @property
    def statistic(self):
        from fairkit.statistics import Contributions

        return Contributions("above", lambda rows: np.stack([np.ones(len(rows.score)), rows.score > 0.5], axis=1))


def test_a_metric_of_somebody_else_is_counted_too(address, monkeypatch):
    from fairkit import plugins

    known = plugins.metrics_of

    def more(used):
        metrics, clashes = known(used)
        return [*metrics, Above], clashes

    monkeypatch.setattr(plugins, "metrics_of", more)
    read, counted = both(address, **LABELLED, sensitive=["sex"], predictions={"score": "score"})
    assert read.find("share_above_difference", "sex").value == counted.find("share_above_difference", "sex").value
    assert_equal(read, counted)


@pytest.mark.long
def test_the_digest_is_that_of_the_rows_in_any_order_and_table(tmp_path):
    table = people()
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    roles = {**LABELLED, "sensitive": ["sex", "age"], "predictions": {"decision": "offered"}}
    digests = []
    for place, one in enumerate((table, shuffled, table.slice(1))):
        data = fairkit.load_data(database(tmp_path, one, f"{place}.db"), **{**roles, "sensitive": ["sex"]})
        digests.append(fairkit.audit(None, data, engine=SqlEngine(pulls=False)).data.sha256)
    assert digests[0] == digests[1] != digests[2]
    assert digests[0] != fairkit.load_data(table, **roles).learn().sha256
