"""Paired comparisons: the values of the audits, intervals against row bootstraps, coverage, and what is noise."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit.models.columns import PredictedColumns
from fairkit.settings import ModelOptions
from fairkit_comparing.collect import DrawnScores, Paired, paired_areas
from fairkit_comparing.disparities import change, change_of_parity, differences, distinct_rows, root_mean_squares
from fairkit_comparing.run import compare


def table(rows: int, seed: int, *, groups: int = 3) -> pa.Table:
    rng = np.random.default_rng(seed)
    group = rng.integers(groups, size=rows)
    truth = rng.random(rows)
    first = np.clip(truth + rng.normal(0, 0.25, rows) + 0.05 * group, 0, 1)
    second = np.clip(first + rng.normal(0, 0.1, rows) - 0.04 * group, 0, 1)
    return pa.table(
        {
            "g": [f"g{i}" for i in group],
            "y": (rng.random(rows) < truth).astype(int),
            "a": first,
            "b": second,
            "t": truth * 10,
            "w": rng.integers(1, 4, rows).astype(float),
        }
    )


def load(source: pa.Table, **more: object) -> fairkit.Dataset:
    return fairkit.load_data(source, label="y", favorable=1, sensitive=["g"], **more)


A, B = PredictedColumns(score="a"), PredictedColumns(score="b")


@pytest.mark.parametrize("weights", [None, "w"])
def test_the_values_are_those_of_the_audits(weights: str | None):
    data = load(table(1500, 0), weights=weights)
    result = compare([A, B], data)
    reports = [fairkit.audit(model, data) for model in (A, B)]
    compared = 0
    for one in result.changes[0]:
        if one.group is not None or one.before is None:
            continue
        values = [report.find(one.metric, one.sensitive).value for report in reports]
        assert (one.before, one.after) == pytest.approx(values, abs=1e-10), one.metric
        compared += 1
    assert compared >= 60
    names = {one.metric for one in result.changes[0]}
    wanted = {"statistical_parity_ks", "gap_max", "gap_rms", "equalized_odds_ratio", "accuracy_group_min"}
    assert wanted | {"log_loss_group_max", "selection_rate_group_min", "selection_rate_group_max"} <= names
    assert result.find("selection_rate", "g", group="g1").before == pytest.approx(
        next(g.value for g in reports[0].find("selection_rate_difference", "g").groups if g.group == "g1")
    )


METRICS = (
    ("accuracy", None), ("balanced_accuracy", None), ("f1_score", None), ("roc_auc", None), ("log_loss", None),
    ("demographic_parity_difference", "g"), ("demographic_parity_ratio", "g"),
    ("accuracy_group_min", "g"), ("log_loss_group_max", "g"), ("gap_max", "g"),
)  # fmt: skip


@pytest.mark.long
def test_intervals_are_as_wide_as_those_of_a_row_bootstrap(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fairkit_comparing.disparities.DRAWS", 2)  # another test's matter
    source = table(1500, 1, groups=2)
    result = compare([A, B], load(source))
    rng = np.random.default_rng(2)
    draws: dict[tuple[str, str | None], list[float]] = {key: [] for key in METRICS}
    for _ in range(80):
        sample = compare([A, B], load(source.take(rng.integers(0, 1500, 1500))))
        for key, values in draws.items():
            difference = sample.find(*key).difference
            assert difference is not None
            values.append(difference)
    for key, values in draws.items():
        found = result.find(*key)
        assert found.interval is not None
        width = found.interval[1] - found.interval[0]
        assert width == pytest.approx(2 * 1.96 * np.std(values), rel=0.28), key  # four standard errors of 80 draws


def test_pairing_narrows_the_interval():
    data = load(table(3000, 3))
    found = compare([A, B], data).find("roc_auc")
    single = fairkit.audit(A, data).find("roc_auc")
    assert found.interval is not None
    assert single.interval is not None
    assert found.interval[1] - found.interval[0] < 0.6 * (single.interval[1] - single.interval[0])


def test_a_model_beside_itself_is_within_noise_and_a_coin_is_worse():
    data = load(table(3000, 4).append_column("coin", pa.array(np.random.default_rng(0).random(3000))))
    result = compare([A, A, PredictedColumns(score="coin")], data)
    assert {one.outcome for one in result.changes[0]} == {"same"}
    assert result.find("accuracy").interval != (0.0, 0.0)
    assert result.find("accuracy", model=2).outcome == "worse"
    assert result.find("roc_auc", model=2).outcome == "worse"
    assert result.find("selection_rate", model=2).better == "none"


@pytest.mark.long
@pytest.mark.parametrize("groups", [2, 5])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("spread", [(0.0, 0.0), (0.1, 0.1), (0.1, 0.0)])
def test_intervals_of_changed_disparities_cover(groups: int, correlation: float, spread: tuple[float, float]):
    rng = np.random.default_rng(5)
    truth = np.zeros((2, groups))
    truth[:, 0] = spread
    covariance = 1e-4 * np.array([[1, correlation], [correlation, 1]])
    true = float(np.ptp(truth[1]) - np.ptp(truth[0]))
    hits, runs = 0, 400
    for _ in range(runs):
        noise = rng.multivariate_normal([0, 0], covariance, size=groups).T
        numbers = Paired(truth + noise, np.repeat(covariance[None], groups, axis=0))
        seen = change(differences(numbers), numbers, 0.95)
        hits += seen.low - 1e-12 <= true <= seen.high + 1e-12
    assert hits / runs >= 0.928  # 0.95 less two standard errors of 400 runs


@pytest.mark.long
@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("spread", [(0.0, 0.0), (0.1, 0.1), (0.1, 0.0), (0.02, 0.05)])
def test_intervals_of_changed_root_mean_squares_cover(groups: int, spread: tuple[float, float]):
    rng = np.random.default_rng(15)
    truth = np.zeros((2, groups))
    truth[:, 0] = spread
    covariance = 1e-4 * np.array([[1, 0.8], [0.8, 1]])
    true = float((spread[1] - spread[0]) * np.sqrt((1 + 0.5**2) / 2))
    hits, runs = 0, 300
    for _ in range(runs):
        rates = [
            Paired(
                share * truth + rng.multivariate_normal([0, 0], covariance, size=groups).T,
                np.repeat(covariance[None], groups, axis=0),
            )
            for share in (1, 0.5)
        ]
        seen = change(root_mean_squares(*rates), rates[0].beside(rates[1]), 0.95, directions=True)
        pairs = [[rate.values[m][:, None] - rate.values[m] for rate in rates] for m in (0, 1)]
        values = [np.sqrt((t**2 + f**2) / 2).max() for t, f in pairs]
        assert (seen.first, seen.second) == pytest.approx(values)
        hits += seen.low <= true <= seen.high
    assert hits / runs >= 0.925  # 0.95 less two standard errors of three hundred runs


def test_a_root_mean_square_far_from_0_has_the_interval_of_the_delta_method():
    covariance = np.repeat(1e-6 * np.array([[[4.0, 3.0], [3.0, 4.0]]]), 2, axis=0)
    rates = [
        Paired(np.array([[0.5, 0.2], [0.4, 0.2]]), covariance),
        Paired(np.array([[0.3, 0.2], [0.3, 0.25]]), covariance),
    ]
    seen = change(root_mean_squares(*rates), rates[0].beside(rates[1]), 0.95, directions=True)
    gaps = np.array([[0.3, 0.1], [0.2, 0.05]])
    slopes = gaps / (2 * np.sqrt((gaps**2).mean(axis=1, keepdims=True)))
    variance = 2 * (4e-6 * (slopes**2).sum() - 2 * 3e-6 * (slopes[0] * slopes[1]).sum())
    assert seen.high - seen.low == pytest.approx(2 * 1.96 * np.sqrt(variance), rel=0.1)


def test_two_clearly_different_groups_have_the_usual_paired_interval():
    covariance = np.array([[[4.0, 1.0], [1.0, 2.0]], [[1.0, 0.5], [0.5, 3.0]]]) * 1e-6
    numbers = Paired(np.array([[0.5, 0.2], [0.45, 0.25]]), covariance)
    seen = change(differences(numbers), numbers, 0.95)
    error = np.sqrt(sum(c[0, 0] + c[1, 1] - 2 * c[0, 1] for c in covariance))
    assert seen.high - seen.low == pytest.approx(2 * 1.959964 * error, rel=1e-6)
    assert seen.second - seen.first == pytest.approx(-0.1)


def shifted(rows: int, groups: int, shifts: tuple[float, float], rng: np.random.Generator):
    """Two models' normal scores, correlated, one group's moved; and the true distances of distributions."""
    from statistics import NormalDist

    group = rng.integers(groups, size=rows)
    noise = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=rows)
    one = np.ones(1)
    scores = [DrawnScores((noise[:, m] + shifts[m] * (group == 0))[:, None], one) for m in (0, 1)]
    normal = NormalDist()
    far = [
        (1 - 1 / groups) * (normal.cdf(shift / 2) - normal.cdf(-shift / 2)) for shift in shifts
    ]  # at the middle of the two means
    return (scores[0], scores[1]), group, far[1] - far[0]


@pytest.mark.long
@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("shifts", [(0.0, 0.0), (0.5, 0.5), (0.5, 0.0), (0.2, 0.5)])
def test_intervals_of_changed_score_parity_cover(groups: int, shifts: tuple[float, float], monkeypatch):
    monkeypatch.setattr("fairkit_comparing.disparities.DRAWS", 149)
    rng = np.random.default_rng(11)
    hits, runs = 0, 60
    for _ in range(runs):
        scores, group, true = shifted(400, groups, shifts, rng)
        seen = change_of_parity(scores, group, groups, None, 0.95)
        hits += seen.low <= true <= seen.high
    assert hits / runs >= 0.9  # 0.95 less nearly two standard errors of sixty runs


def test_the_interval_of_score_parity_follows_the_noise():
    rng = np.random.default_rng(12)
    scores, group, _ = shifted(12_000, 2, (0.2, 0.8), rng)
    seen = change_of_parity(scores, group, 2, None, 0.95)
    draws = []
    for _ in range(60):
        again, other, _ = shifted(12_000, 2, (0.2, 0.8), rng)
        cdf = [np.sort(again[m].values[:, 0]) for m in (0, 1)]
        far = []
        for m in (0, 1):
            own = np.sort(again[m].values[other == 0, 0])
            shares = np.searchsorted(own, cdf[m], side="right") / len(own)
            far.append(np.abs(shares - np.arange(1, 12_001) / 12_000).max())
        draws.append(far[1] - far[0])
    width = seen.high - seen.low
    assert 0.75 < width / (2 * 1.96 * np.std(draws)) < 2.2
    assert seen.low < seen.second - seen.first < seen.high


def test_score_parity_of_a_model_beside_itself_and_of_weights_as_copies():
    rng = np.random.default_rng(13)
    scores, group, _ = shifted(500, 2, (0.0, 0.6), rng)
    same = change_of_parity((scores[0], scores[0]), group, 2, None, 0.95)
    assert same.first == same.second
    assert same.low <= 0 <= same.high
    times = rng.integers(1, 4, 500)
    weighted = change_of_parity(scores, group, 2, times.astype(float), 0.95)
    copies = tuple(DrawnScores(np.repeat(one.values, times, axis=0), one.shares) for one in scores)
    copied = change_of_parity((copies[0], copies[1]), np.repeat(group, times), 2, None, 0.95)
    assert (weighted.first, weighted.second) == pytest.approx((copied.first, copied.second))
    assert weighted.high - weighted.low > copied.high - copied.low  # copies are not more people


def test_areas_agree_with_scikit_learn():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(6)
    outcome, weights = rng.integers(0, 2, 400).astype(float), rng.random(400)
    scores = (np.round(rng.random(400), 1), rng.random(400))
    one = np.ones(1)
    drawn = (DrawnScores(scores[0][:, None], one), DrawnScores(scores[1][:, None], one))
    found = paired_areas(drawn, outcome, weights, np.zeros(400, dtype=np.int64), 1)
    for model in (0, 1):
        assert found.values[model, 0] == pytest.approx(roc_auc_score(outcome, scores[model], sample_weight=weights))


def test_regressions_and_several_classes_are_compared():
    source = table(900, 7)
    data = fairkit.load_data(source, label="t", sensitive=["g"])
    result = compare([A, B], data)
    error = (source["a"].to_numpy() - source["t"].to_numpy()) ** 2
    assert result.find("mean_squared_error").before == pytest.approx(error.mean())
    assert result.find("mean_squared_error").interval is not None


class Chances:
    """Three classes' probabilities from columns, tilted by so much."""

    def __init__(self, tilt: float):
        self.tilt = tilt
        self.classes_ = np.array(["x", "y", "z"])

    def predict_proba(self, rows):
        rows = np.asarray(rows, dtype=float)
        logits = np.column_stack([rows[:, 0] + self.tilt, rows[:, 1], np.zeros(len(rows))])
        chances = np.exp(logits)
        return chances / chances.sum(axis=1, keepdims=True)

    def predict(self, rows):
        return self.classes_[self.predict_proba(rows).argmax(axis=1)]


def test_each_class_is_compared_against_the_others():
    rng = np.random.default_rng(14)
    p, q = rng.normal(size=(2, 900))
    label = np.array(["x", "y", "z"])[np.argmax(np.stack([p, q, 0 * p]) + rng.gumbel(size=(3, 900)), axis=0)]
    columns = {"p": p, "q": q, "g": rng.choice(["a", "b"], 900), "y": label}
    data = fairkit.load_data(columns, label="y", sensitive=["g"], features=["p", "q"])
    result = compare([Chances(0.0), Chances(1.5)], data)
    reports = [fairkit.audit(model, data) for model in (Chances(0.0), Chances(1.5))]
    compared = 0
    for one in result.changes[0]:
        if one.group is None and one.before is not None:
            values = [
                next(
                    f.value
                    for f in report.findings
                    if (f.metric, f.sensitive, f.parameters.get("class"))
                    == (one.metric, one.sensitive, one.parameters.get("class"))
                )
                for report in reports
            ]
            assert (one.before, one.after) == pytest.approx(values, abs=1e-10), one.metric
            compared += 1
    assert compared >= 150
    assert result.find("accuracy").outcome == "worse"
    assert result.find("selection_rate", label="x").outcome == "changed"
    assert result.find("statistical_parity_ks", "g", label="z").interval is not None


@pytest.mark.long
def test_a_mixture_of_drawn_scores_is_compared_as_it_is_audited():
    result = fairkit.mitigate("fair-regression", loans(), learner="logistic", tolerance=0.05, iterations=2)
    models = [result.onnx, result.onnx]
    found = compare(models, loans())
    report = fairkit.audit(result.onnx, loans())
    assert len(result.details["weights"]) > 1
    for name in ("roc_auc", "log_loss", "brier_score", "accuracy"):
        assert found.find(name).before == pytest.approx(report.find(name).value, abs=1e-9), name
    ks = found.find("statistical_parity_ks", "sex")
    assert ks.before == pytest.approx(report.find("statistical_parity_ks", "sex").value, abs=1e-9)


def loans() -> fairkit.Dataset:
    from fairkit_datasets.loans import loans_table

    return fairkit.load_data(loans_table(700, 3), label="decision", favorable="approved", sensitive="sex")


def test_bad_input_is_refused():
    data = load(table(300, 8))
    with pytest.raises(fairkit.ParameterError, match="two models"):
        compare([A], data)
    with pytest.raises(fairkit.ParameterError, match="confidence"):
        compare([A, B], data, confidence=95)


def test_without_a_label_what_needs_no_outcome_is_compared():
    source = table(900, 8)
    with_label = compare([A, B], load(source))
    unlabelled = fairkit.load_data(source.drop_columns(["y"]), sensitive=["g"])
    options = ModelOptions(task="binary")
    bare = compare([A, B], unlabelled, options=options)
    assert not {change.metric for change in bare.changes[0]} & {"accuracy", "roc_auc", "true_positive_rate"}
    for metric in ("demographic_parity_difference", "mean_prediction_difference", "statistical_parity_ks"):
        one, other = (found.find(metric, "g") for found in (bare, with_label))
        assert one.before == pytest.approx(other.before, abs=1e-8)
        assert one.interval == pytest.approx(other.interval, abs=1e-8)
    assert any("no label" in note for note in bare.notes)


class Fixed:
    """A classifier of a logistic score of the columns that it gets, in their order."""

    classes_ = np.array([0, 1])

    def __init__(self, *factors: float) -> None:
        self.factors = factors
        self.n_features_in_ = len(factors)

    def predict_proba(self, matrix: np.ndarray) -> np.ndarray:
        assert np.asarray(matrix).shape[1] == len(self.factors)
        p = 1 / (1 + np.exp(-np.asarray(matrix, dtype=float) @ np.array(self.factors)))
        return np.column_stack([1 - p, p])

    def predict(self, matrix: np.ndarray) -> np.ndarray:
        return (self.predict_proba(matrix)[:, 1] >= 0.5).astype(int)


def test_models_with_features_of_their_own():
    """A champion of two columns and a challenger of three, in another order."""
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=800) for name in "uvw"} | {"g": rng.choice(["a", "b"], 800)}
    columns["y"] = (rng.random(800) < 1 / (1 + np.exp(-columns["u"] - columns["v"]))).astype(int)
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["g"])
    features = [("u", "v"), ("w", "v", "u")]
    found = compare([Fixed(1, 1), Fixed(0.1, 1, 1)], data, features=features)
    for model, own, place in ((Fixed(1, 1), features[0], "before"), (Fixed(0.1, 1, 1), features[1], "after")):
        alone = fairkit.load_data(columns, label="y", favorable=1, sensitive=["g"], features=own)
        report = fairkit.audit(model, alone)
        for metric in ("accuracy", "roc_auc"):
            assert getattr(found.find(metric), place) == pytest.approx(report.find(metric).value, abs=1e-12)
    with pytest.raises(fairkit.DataError, match="nobody"):
        compare([Fixed(1, 1), Fixed(1, 1)], data, features=[("u", "v"), ("u", "nobody")])


def test_what_an_audit_warns_of_a_comparison_does():
    source = table(900, 8)
    constant = source.append_column("one", pa.array([1] * 900))
    twice = pa.concat_tables([constant, constant.slice(0, 90)])
    found = compare([A, PredictedColumns(decision="one")], load(twice))
    assert any("All 990 rows get the favorable decision" in text for text in found.warnings), found.warnings
    assert any("Rows are copies of others" in text for text in found.warnings)
    assert found.to_dict()["warnings"] == list(found.warnings)
    assert not compare([A, B], load(source)).warnings


def test_a_small_group_is_undecided():
    source = table(300, 9)
    few = pa.concat_tables([source, source.slice(0, 5).set_column(0, "g", pa.array(["few"] * 5))])
    result = compare([A, PredictedColumns(score="b")], load(few))
    assert result.find("accuracy", "g", group="few").outcome == "undecided"
    assert result.find("demographic_parity_difference", "g").outcome == "undecided"


@pytest.mark.parametrize("values", [(3, 5, 2), (1,), (2_000_000,) * 6])
def test_distinct_rows_are_those_of_numpy(values):
    """Six columns of millions of values each are more combinations than a number has bits for."""
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, count, 2_000) for count in values], axis=1)
    rows[1_000:] = rows[:1_000]
    table, place = distinct_rows(rows)
    known, inverse = np.unique(rows, axis=0, return_inverse=True)
    np.testing.assert_array_equal(table, known)
    np.testing.assert_array_equal(place, inverse.reshape(-1))


def test_group_probabilities_are_refused():
    source = table(200, 0)
    chance = np.linspace(0, 1, 200)
    source = source.append_column("p_a", pa.array(chance)).append_column("p_b", pa.array(1 - chance))
    data = load(source, sensitive_probability=["race=p_a,p_b"])
    with pytest.raises(fairkit.FairkitError, match="leave out `sensitive_probability`"):
        compare([A, B], data)


# Two models compared under conditions: pooled inside strata, against a reference, with dependent rows.
def _rows(rng: np.random.Generator, n: int = 2000) -> dict[str, np.ndarray]:
    who = rng.integers(0, n // 8, n)
    chance = rng.beta(0.6, 1.4, n // 8)[who]
    columns = {"g": np.where(who % 2 == 0, "a", "b"), "d": rng.choice(list("xyz"), n), "who": who}
    columns |= {name: (rng.random(n) < chance).astype(int) for name in ("h", "k", "y")}
    return columns | {"s": chance, "t": np.clip(chance + rng.normal(0, 0.1, n), 0, 1)}


def _compare(columns: dict[str, np.ndarray], **roles: object) -> fairkit.Comparison:
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["g"], **roles)
    models = [fairkit.PredictedColumns(decision=d, score=s) for d, s in (("h", "s"), ("k", "t"))]
    return fairkit.compare(models, data)


def test_pooled_and_referred_changes_are_those_of_the_audits() -> None:
    columns = _rows(np.random.default_rng(0))
    roles = {"within": ["d"], "reference": ["g=b"]}
    found = _compare(columns, **roles)
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["g"], **roles)
    for place, decision in (("before", "h"), ("after", "k")):
        report = fairkit.audit(fairkit.PredictedColumns(decision=decision, score="s"), data)
        inside = found.find("demographic_parity_difference", "g", within="d")
        expected = report.find("demographic_parity_difference", "g", within="d").value
        assert getattr(inside, place) == pytest.approx(expected, abs=1e-12)
        signed = found.find("demographic_parity_difference", "g", group="a", reference="b")
        known = report.find("demographic_parity_difference", "g", reference="b").value
        assert getattr(signed, place) == pytest.approx(known, abs=1e-12)


@pytest.mark.long
def test_dependent_rows_widen_and_cover() -> None:
    rng = np.random.default_rng(1)
    hits = {"demographic_parity_difference": 0, "roc_auc": 0}
    runs = 25
    for _ in range(runs):
        found = _compare(_rows(rng), cluster="who")
        one = found.find("demographic_parity_difference", "g").interval
        assert one is not None
        hits["demographic_parity_difference"] += one[0] <= 0 <= one[1]
        area = found.find("roc_auc").interval
        assert area is not None
        hits["roc_auc"] += area[0] <= -0.02 <= area[1]
    assert hits["demographic_parity_difference"] >= 0.8 * runs


def test_every_row_its_own_cluster_changes_little() -> None:
    columns = _rows(np.random.default_rng(2), 8000)
    alone = columns | {"who": np.arange(8000)}
    bare, same = _compare(columns), _compare(alone, cluster="who")
    for metric in ("accuracy", "brier_score", "roc_auc", "f1_score"):
        one, other = (c.find(metric).interval for c in (bare, same))
        assert one is not None
        assert other is not None
        assert other[1] - other[0] == pytest.approx(one[1] - one[0], rel=0.15), metric
