"""The auditor on the synthetic loans: what it finds, what it refuses, and what stays the same."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fairkit
from fairkit.data.loading import load_data
from fairkit.errors import DataError, ParameterError
from fairkit.results.findings import Finding

ROLES = {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}
QUICK = {"calls": 12_000}


def audit(model, frame, settings=None, policy=None, **roles):
    data = load_data(frame, **(ROLES | roles))
    return fairkit.audit(model, data, auditors=["why"], parameters={"why": QUICK | (settings or {})}, policy=policy)


def parts(finding):
    return {one["column"]: one["value"] for one in finding.evidence["columns"]}


@pytest.fixture(scope="module")
def report(model, frame):
    return audit(model, frame, {"allowed": ("income", "employment")})


def test_decisions_scores_rates_and_what_is_left(report, model, frame):
    decision, score = (one for one in report.findings if one.metric == "attribution")
    assert (decision.parameters["of"], score.parameters["of"]) == ("decision", "score")
    assert (decision.evidence["method"], score.evidence["method"]) == ("sampled", "exact")
    data = load_data(frame, **ROLES)
    plain = fairkit.audit(model, data).find("demographic_parity_difference", "sex")
    assert decision.value == pytest.approx(plain.value, abs=1e-9)
    for one in (decision, score):
        assert sum(parts(one).values()) == pytest.approx(one.value, abs=1e-12)
        assert all(c["interval"][0] <= c["value"] <= c["interval"][1] for c in one.evidence["columns"] if c["interval"])
    three = [one for one in report.findings if one.metric.endswith("_part")]
    assert sum(one.value for one in three) == pytest.approx(plain.value, abs=1e-9)
    left = next(one for one in report.findings if one.metric == "unexplained_difference")
    assert left.within == ("income", "employment")
    assert left.evidence["explained"] + left.evidence["left"]["group"] == pytest.approx(plain.value, abs=1e-9)
    assert left.interval[0] <= left.value <= left.interval[1]


def test_report_goes_to_json_and_back(report):
    again = [Finding.from_dict(json.loads(json.dumps(one.to_dict()))) for one in report.findings]
    assert [one.to_dict() for one in again] == [one.to_dict() for one in report.findings]


def test_the_order_of_rows_changes_nothing(report, model, frame):
    mixed = frame.sample(frac=1.0, random_state=5).reset_index(drop=True)
    again = audit(model, mixed, {"allowed": ("income", "employment")})
    for one, other in zip(report.findings, again.findings, strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-12)
        if one.metric == "attribution":
            assert json.dumps(one.evidence) == json.dumps(other.evidence)


def test_the_seed_chooses_nothing(report, model, frame):
    data = load_data(frame, **ROLES)
    told = {"why": QUICK | {"allowed": ("income", "employment")}}
    again = fairkit.audit(model, data, auditors=["why"], parameters=told, seed=99)
    assert [one.to_dict() for one in again.findings] == [one.to_dict() for one in report.findings]


def test_rates_are_divided_among_rows_with_an_outcome(model, frame):
    found = audit(model, frame, {"metric": ("true_positive_rate", "false_positive_rate")}).findings
    data = load_data(frame, **ROLES)
    plain = fairkit.audit(model, data)
    for one, name in zip(found, ("true_positive_rate", "false_positive_rate"), strict=False):
        assert one.parameters["of"] == name
        assert abs(one.value) == pytest.approx(plain.find(f"{name}_difference", "sex").value, abs=1e-9)


def test_the_reference_turns_the_gap_round(model, frame):
    one, other = (
        audit(model, frame, {"metric": ("score",)}, reference=[f"sex={group}"]).findings[0]
        for group in ("female", "male")
    )
    assert one.reference == "female"
    assert one.value == pytest.approx(-other.value, abs=1e-12)
    assert parts(one) == pytest.approx({name: -value for name, value in parts(other).items()}, abs=1e-12)


def test_each_of_several_groups_is_compared_with_the_largest(model, frame):
    found = [f for f in audit(model, frame, sensitive=["ethnicity"]).findings if f.metric == "attribution"]
    largest = frame["ethnicity"].value_counts().idxmax()
    assert {one.reference for one in found} == {largest}
    assert len({one.parameters["group"] for one in found}) == frame["ethnicity"].nunique() - 1


def test_columns_together_have_the_sum_of_a_duplicate(frame, model):
    together = audit(model, frame, {"metric": ("score",), "together": ("income+amount",)}).findings[0]
    alone = audit(model, frame, {"metric": ("score",)}).findings[0]
    assert "income+amount" in parts(together)
    assert sum(parts(together).values()) == pytest.approx(sum(parts(alone).values()), abs=1e-12)


def test_weights_of_two_are_rows_twice_but_no_surer(model, frame):
    whole = frame.assign(w=np.where(frame["sex"] == "female", 2.0, 1.0))
    weighted = audit(model, whole, {"metric": ("score",)}, weights="w").findings
    twice = frame.loc[frame.index.repeat(np.where(frame["sex"] == "female", 2, 1))].reset_index(drop=True)
    plain = audit(model, twice, {"metric": ("score",)}).findings
    assert parts(weighted[0]) == pytest.approx(parts(plain[0]), abs=1e-9)
    for one, other in zip(weighted[1:], plain[1:], strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-9)
        assert one.interval[1] - one.interval[0] > other.interval[1] - other.interval[0]


@pytest.mark.long
def test_clusters_make_intervals_wider(model, frame):
    copies = frame.loc[frame.index.repeat(4)].reset_index(drop=True)
    copies["home"] = np.arange(len(copies)) // 4
    told = {"metric": ("selection_rate", "score"), "allowed": ("income",)}
    plain, dependent = audit(model, copies, told), audit(model, copies, told, cluster="home")
    for one, other in zip(plain.findings, dependent.findings, strict=True):
        assert other.interval[1] - other.interval[0] > 1.3 * (one.interval[1] - one.interval[0])


def test_rows_without_a_group_are_in_no_gap(frame, train):
    features = [c for c in frame if c not in ("decision", "sex")]
    blind = train(frame, features)
    some = frame.copy()
    some.loc[:99, "sex"] = None
    found, kept = (audit(blind, one, features=features).findings for one in (some, frame[100:]))
    assert found[1].value == pytest.approx(kept[1].value, abs=1e-12)


def test_residuals_have_the_outcome_as_a_player(frame, train):
    features = [c for c in frame if c not in ("decision", "amount")]
    model = train(frame, features, label="amount", favorable=None)
    roles = {"label": "amount", "favorable": None}
    found = audit(model, frame, {"metric": ("mean_prediction", "mean_residual")}, **roles).findings
    said, left = found[0], found[1]
    assert (said.parameters["of"], left.parameters["of"]) == ("prediction", "residual")
    shared = set(parts(said))
    assert set(parts(left)) == shared | {"outcome"}
    sign = 1 if said.reference == left.reference else -1
    assert {n: -sign * v for n, v in parts(left).items() if n in shared} == pytest.approx(parts(said), abs=1e-9)


def test_columns_of_decisions_have_parts_and_what_is_left_and_no_columns(frame):
    decided = frame.assign(said=np.where(frame["income"] > frame["income"].median(), "approved", "denied"))
    data = load_data(decided, **ROLES, predictions={"decision": "said"})
    found = fairkit.audit(None, data, auditors=["why"], parameters={"why": {"allowed": ("income",)}}).findings
    assert {one.metric for one in found} == {
        "base_rate_part", "true_positive_rate_part", "false_positive_rate_part", "unexplained_difference"
    }  # fmt: skip


def test_any_object_that_predicts_is_divided(frame):
    class Rule:
        def predict_proba(self, rows):
            chance = 1 / (1 + np.exp(-(np.asarray(rows["income"], dtype=float) - 40_000) / 10_000))
            return np.stack([1 - chance, chance], axis=1)

        def predict(self, rows):
            return np.where(self.predict_proba(rows)[:, 1] >= 0.5, "approved", "denied")

    found = audit(Rule(), frame).findings
    assert [one.parameters.get("of") for one in found if one.metric == "attribution"] == ["decision"]
    assert parts(found[0])["income"] == pytest.approx(found[0].value, abs=1e-12)
    assert all(abs(value) < 1e-12 for name, value in parts(found[0]).items() if name != "income")


@pytest.mark.long
def test_training_again_is_compared_on_the_same_rows(model, frame, tmp_path):
    frame.to_csv(tmp_path / "train.csv", index=False)
    told = {"refit": str(tmp_path / "train.csv"), "without": ("income",), "metric": ("selection_rate",)}
    gone = next(one for one in audit(model, frame, told).findings if one.metric == "gap_without")
    assert gone.parameters["without"] == "income"
    assert gone.value - gone.evidence["with"] == pytest.approx(gone.evidence["change"], abs=1e-12)
    again = audit(model, frame, told | {"refits": 3})
    other = next(one for one in again.findings if one.metric == "gap_without")
    assert other.evidence["refit_deviation"] > 0
    assert other.interval[1] - other.interval[0] > gone.interval[1] - gone.interval[0]


def test_training_again_on_several_classes_predicts_the_most_probable_one(tmp_path):
    """Of men 40 % are high, 30 % mid, 30 % low, of women 30, 40 and 30 %: by sex alone all men are predicted high."""
    import pandas as pd

    shares = {"male": (0.4, 0.3, 0.3), "female": (0.3, 0.4, 0.3)}
    rows = [
        {"sex": sex, "male": float(sex == "male"), "noise": float(number % 7), "y": name}
        for sex, parts_of in shares.items()
        for name, share in zip(("high", "mid", "low"), parts_of, strict=True)
        for number in range(round(1_000 * share))
    ]
    table = pd.DataFrame(rows)
    table.to_csv(tmp_path / "train.csv", index=False)

    class Model:
        def predict_proba(self, rows):
            men = np.asarray(rows["male"], dtype=float)[:, None]
            return men * [0.4, 0.3, 0.3] + (1 - men) * [0.3, 0.3, 0.4]

        classes_ = np.array(["high", "low", "mid"])

        def predict(self, rows):
            return self.classes_[self.predict_proba(rows).argmax(axis=1)]

    data = fairkit.load_data(table, label="y", favorable="high", sensitive=["sex"], features=["male", "noise"])
    settings = {"refit": str(tmp_path / "train.csv"), "without": ("noise",), "metric": ("selection_rate",)}
    found = fairkit.audit(Model(), data, auditors=["why"], parameters={"why": settings})
    gone = next(one for one in found.findings if one.metric == "gap_without")
    assert gone.value == 1.0
    assert any("the audited one" in note for note in gone.notes)


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"metric": ("fairness",)}, ParameterError, "no metric"),
        ({"metric": ("mean_prediction",)}, ParameterError, "not for a binary task"),
        ({"allowed": ("height",)}, DataError, "no column 'height'"),
        ({"allowed": ("decision",)}, ParameterError, "the outcome"),
        ({"allowed": ("sex",)}, ParameterError, "sensitive"),
        ({"together": ("income+height",)}, ParameterError, "not made of columns"),
        ({"together": ("income+age", "age+amount")}, ParameterError, "named twice"),
        ({"without": ("income",)}, ParameterError, "why.refit"),
    ],
)
def test_what_means_nothing_is_refused_before_a_row_is_scored(model, frame, settings, error, text):
    with pytest.raises(error, match=text):
        audit(model, frame, settings)


def test_small_groups_are_not_divided(model, frame):
    small = frame[(frame["sex"] == "male") | (frame.index < 60)].reset_index(drop=True)
    found = audit(model, small).findings
    assert found[0].value is None
    assert "at least 50 rows" in found[0].inconclusive


def test_rules_limit_what_is_left_and_a_columns_part(model, frame):
    rules = [
        fairkit.Rule("unexplained_difference:sex|income+employment", max=0.9),
        fairkit.Rule("attribution:sex.income", max=0.000001),
        fairkit.Rule("attribution:sex.region", max=0.9),
    ]
    found = audit(model, frame, {"allowed": ("income", "employment")}, policy=rules)
    assert [rule.verdict for rule in found.policy][::2] == ["pass", "pass"]
    assert found.policy[1].verdict in ("fail", "inconclusive")
    with pytest.raises(fairkit.FairkitError, match=r"sex\.height"):
        audit(model, frame, policy=[fairkit.Rule("attribution:sex.height", max=0.1)])


def test_a_negative_part_is_limited_by_its_size():
    from fairkit.results.policy import judge

    finding = Finding(
        auditor="why", metric="attribution", sensitive="sex", value=0.0, interval=(-0.1, 0.1), reference="male",
        parameters={"of": "decision"},
        evidence={"columns": [{"column": "a", "value": -0.2, "interval": [-0.22, -0.18]},
                              {"column": "b", "value": 0.2, "interval": [0.18, 0.22]}]},
    )  # fmt: skip
    rules = [fairkit.Rule(f"attribution:sex.{name}", max=0.05) for name in ("a", "b")]
    assert [one.verdict for one in judge(rules, [finding])[0]] == ["fail", "fail"]


@pytest.mark.long
def test_the_waterfall_is_an_altair_chart(model, frame):
    pytest.importorskip("altair", reason="Altair is not installed (pip install 'fairkit[charts]')")
    told = {"why": {**QUICK, "allowed": ["income"]}}
    report = fairkit.audit(model, load_data(frame, **ROLES), auditors=["why"], parameters=told)
    panels = report.plot("columns").to_dict()["vconcat"]
    assert [panel["title"].rpartition(" ")[2] for panel in panels] == ["decision", "score"]
    found = next(f for f in report.findings if f.metric == "attribution")
    values = panels[0]["data"]["values"]
    assert values[-1]["end"] == pytest.approx(found.value)
    assert report.plot("left").to_dict()["layer"]
    with pytest.raises(fairkit.FairkitError, match="Did you mean"):
        report.plot("colums")


def keep_at_most(monkeypatch, rows):
    monkeypatch.setattr("fairkit_why.audit_rows.MOST_ROWS", rows)
    monkeypatch.setattr("fairkit_why.audit_rows.FEWEST_SAMPLED", 60)


def test_many_rows_are_a_sample_that_says_so(model, frame, monkeypatch):
    settings = {"allowed": ("income",), "people": ("employment=self-employed",)}
    whole = audit(model, frame, settings, sensitive=["sex", "ethnicity"])
    keep_at_most(monkeypatch, 900)
    some = audit(model, frame, settings, sensitive=["sex", "ethnicity"])
    assert len(some.findings) == len(whole.findings)
    for one, every in zip(some.findings, whole.findings, strict=True):
        assert (one.metric, one.sensitive, one.reference) == (every.metric, every.sensitive, every.reference)
        if one.metric.endswith("_part"):  # of the totals of all rows
            assert one.to_dict() == every.to_dict()
        elif one.sensitive == "sex":
            assert one.notes[0].startswith("On a sample, drawn at random: 450 of ")
            assert one.evidence["sample"]
        if one.metric == "attribution" and one.sensitive == "sex":
            assert [group.rows for group in one.groups] == [450, 450]
            assert one.interval[0] < every.value < one.interval[1]
            assert 1.1 < np.ptp(one.interval) / np.ptp(every.interval) < 1.6  # 900 of 1,500 rows: 1.29


def test_weights_and_clusters_keep_their_meaning_in_a_sample(model, frame, monkeypatch):
    rng = np.random.default_rng(0)
    more = frame.assign(w=rng.integers(1, 4, len(frame)), home=np.arange(len(frame)) // 3)
    for roles in ({"weights": "w"}, {"cluster": "home"}):
        whole = audit(model, more, features=list(frame.columns[:-2]), **roles)
        with monkeypatch.context() as few:
            keep_at_most(few, 900)
            some = audit(model, more, features=list(frame.columns[:-2]), **roles)
        for one, every in zip(some.findings, whole.findings, strict=True):
            counted = one.metric.endswith("_part") and "weights" in roles
            assert one.value == pytest.approx(every.value, abs=1e-12 if counted else 0.1 * (1 + abs(every.value)))
            assert one.evidence.get("sample", False) is not counted


def test_the_sample_is_the_same_in_whatever_parts(model, frame, monkeypatch, tmp_path):
    keep_at_most(monkeypatch, 400)
    frame.to_parquet(tmp_path / "whole.parquet")
    (tmp_path / "parts").mkdir()
    for number, start in enumerate(range(0, len(frame), 400)):
        frame[start : start + 400].to_parquet(tmp_path / "parts" / f"{number}.parquet")
    whole, parts = (audit(model, str(tmp_path / where)) for where in ("whole.parquet", "parts/*.parquet"))
    assert [one.to_dict() for one in parts.findings] == [one.to_dict() for one in whole.findings]


def test_every_group_has_its_share_of_a_sample(monkeypatch):
    from fairkit_why.audit_rows import most_of_each

    assert most_of_each([150_000, 150_000]) == 100_000
    assert most_of_each([20_000, 900_000, 900_000]) == 90_000  # the small group has all its rows
    assert most_of_each([1_000_000] * 1_000) == 1_000
    assert most_of_each([50_000, 90_000]) == 90_000


@pytest.mark.long
def test_intervals_of_samples_hold_what_all_rows_say(model, frame, monkeypatch):
    whole = audit(model, frame).findings[:2]
    keep_at_most(monkeypatch, 500)
    hits = []
    for draw in range(60):
        mixed = frame.sample(frac=1.0, random_state=draw)  # other row numbers: another sample
        for one, every in zip(audit(model, mixed).findings, whole, strict=False):
            hits.append(one.interval[0] <= every.value <= one.interval[1])
            truth = parts(every)
            columns = [c for c in one.evidence["columns"] if c["interval"]]
            hits.append(all(c["interval"][0] <= truth[c["column"]] <= c["interval"][1] for c in columns))
    assert np.mean(hits) >= 0.95
