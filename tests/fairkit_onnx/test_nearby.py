"""A model that knows the audited rows gets no pass; honest ones are left alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import fairkit
from fairkit.results.rules import Rule
from fairkit_cli.text.view import report_view
from fairkit_onnx.moving import neighbours

from .hostile import FAIR, UNFAIR, graph

RULE = Rule("demographic_parity_difference", "sex", max=0.15)


def people(rows=3_000, seed=0):
    rng = np.random.default_rng(seed)
    pay, sex = rng.integers(20_000, 90_000, rows), rng.integers(0, 2, rows)
    gain = np.where(rng.random(rows) < 0.9, 0, rng.integers(100, 9_000, rows))
    y = (pay / 40_000 + gain / 5_000 + rng.normal(size=rows) > 1.5).astype(int)
    return {"age": pay.astype(float), "sex": sex.astype(float), "gain": gain.astype(float), "y": y}


def data(columns):
    return fairkit.load_data(columns, label="y", favorable=1, sensitive=["sex"], features=["age", "sex", "gain"])


def memory(keys, step=1):
    """Decide by age about the rows whose pay, rounded to a step, is in a table, and by sex about all others."""
    proto = graph(
        f"""step = Constant<value = float[1] {{{float(step)}}}>() cut = Constant<value = float[1] {{50000.0}}>()
        parts = Div(age, step) round = Round(parts) key = Cast<to = 7>(round)
        known = ai.onnx.ml.LabelEncoder<keys_int64s = [{", ".join(map(str, keys))}], default_int64 = 0,
          values_int64s = [{", ".join(["1"] * len(keys))}]>(key)
        awake = Cast<to = 9>(known) {FAIR.replace("40.0", "50000.0")} {UNFAIR}
        a = Cast<to = 1>(older) b = Cast<to = 1>(male) chosen = Where(awake, a, b) label = Cast<to = 7>(chosen)""",
        "int64[N,1] label",
        inputs="float[N,1] age, float[N,1] sex, float[N,1] gain",
    )
    onnx.checker.check_model(proto)
    return proto


@pytest.mark.parametrize("step", [1, 3])
def test_a_memory_of_the_audited_rows_gets_no_pass(step):
    columns = people()
    keys = sorted({int(np.round(value / step)) for value in columns["age"]})
    report = fairkit.audit(memory(keys, step), data(columns), policy=[RULE])
    found = report.find("demographic_parity_difference", "sex")
    assert found.value < 0.1
    assert found.evidence["nearby"]["nearby"] > 0.4
    assert report.verdict == "inconclusive"
    assert "unlike rows next to them" in (report.policy[0].reason or "")


@pytest.mark.long
@pytest.mark.parametrize("kind", [LogisticRegression, GradientBoostingClassifier, RandomForestClassifier])
def test_honest_models_keep_their_verdict(kind):
    """On training rows too: a forest that fits them fully is no memory in this sense."""
    from skl2onnx import to_onnx
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    columns = people()
    x = np.column_stack([columns[name] for name in ("age", "sex", "gain")]).astype(np.float32)
    model = kind(**({"n_estimators": 30} if kind is RandomForestClassifier else {}))
    fitted = make_pipeline(StandardScaler(), model).fit(x, columns["y"])
    report = fairkit.audit(to_onnx(fitted, x[:1]), data(columns), policy=[RULE])
    told = report.find("demographic_parity_difference", "sex").evidence["nearby"]
    assert abs(told["change"]) < 0.05
    assert report.verdict == "pass", report.policy[0].reason


def test_numbers_go_to_neighbours_and_atoms_stay():
    rng = np.random.default_rng(2)
    cells = {
        "gain": np.where(rng.random(2_000) < 0.9, 0.0, rng.integers(1, 500, 2_000)),
        "hole": np.where(rng.random(2_000) < 0.5, np.nan, rng.normal(size=2_000)),
        "sex": rng.integers(0, 2, 2_000),
        "word": np.array(["a", "b"] * 1_000, dtype=object),
    }
    changed, moved = neighbours(cells, {"sex"}, rng)
    assert not (changed["gain"][cells["gain"] == 0] != 0).any()
    assert np.isnan(changed["hole"][np.isnan(cells["hole"])]).all()
    assert (changed["sex"] == cells["sex"]).all()
    assert (changed["word"] == cells["word"]).all()
    differs = sum(
        (changed[n] != cells[n]) & ~((changed[n] != changed[n]) & (cells[n] != cells[n])) for n in ("gain", "hole")
    )
    assert (differs == moved).all()
    assert (changed["gain"] == np.floor(changed["gain"])).all()
    assert 0 <= changed["gain"].min() <= changed["gain"].max() <= cells["gain"].max()


def test_no_row_moves_to_numbers_that_another_row_has():
    """Numbers of few values: most rows next to a row are in the table, and a memory knows those too."""
    rng = np.random.default_rng(7)
    cells = {name: rng.integers(0, 30, 2_000) for name in ("age", "priors")}
    changed, moved = neighbours(cells, set(), rng)
    there = set(zip(cells["age"].tolist(), cells["priors"].tolist(), strict=True))
    after = list(zip(changed["age"].tolist(), changed["priors"].tolist(), strict=True))
    assert 100 < moved.sum() < 2_000  # the middle of the table has no free place next to it
    assert not any(after[row] in there for row in np.flatnonzero(moved))
    assert all(after[row] in there for row in np.flatnonzero(~moved))


def test_a_group_of_few_rows_is_left_out_next_to_the_rows():
    """Ten rows of a third group, which the model always accepts."""
    columns = people() | {"sex": np.r_[np.full(10, 2.0), people()["sex"][10:]]}
    proto = graph(
        f"""two = Constant<value = float[1] {{1.5}}>() third = Greater(sex, two)
        {FAIR.replace("40.0", "50000.0")} wide = Constant<value = int64[1] {{1}}>()
        plain = Cast<to = 7>(older) label = Where(third, wide, plain)""",
        "int64[N,1] label",
        inputs="float[N,1] age, float[N,1] sex, float[N,1] gain",
    )
    report = fairkit.audit(proto, data(columns))
    told = report.find("demographic_parity_difference", "sex").evidence["nearby"]
    assert told["here"] < 0.1  # of the two large groups; with the third it is more than .4
    found = report.find("demographic_parity_difference", "sex")
    assert found.value > 0.4
    assert "1 group of fewer than 30 rows here is not compared with rows nearby: 2." in found.notes
    assert f"sex: {found.notes[-1]}" in report_view(report).notes


def test_where_one_group_is_left_nothing_is_compared_and_that_is_said():
    columns = people() | {"sex": np.r_[np.ones(20), np.zeros(2_980)]}
    report = fairkit.audit(memory([1]), data(columns))
    found = report.find("equal_opportunity_difference", "sex")
    assert "nearby" not in found.evidence
    assert "1 group of fewer than 30 rows here is not compared with rows nearby: 1." in found.notes
    plain = fairkit.audit(memory([1]), data(people())).find("demographic_parity_difference", "sex")
    assert not any("nearby" in note for note in plain.notes)


def test_a_memory_of_coarse_numbers_is_caught():
    """Ages and numbers of offences as in COMPAS: five of six people next to one of the table are in it."""
    rng = np.random.default_rng(8)
    age = np.minimum(18 + rng.exponential(14, 4_000), 90).round()
    priors = np.minimum(rng.exponential(4, 4_000), 38).round()
    columns = {"age": age, "gain": priors, "sex": rng.integers(0, 2, 4_000).astype(float)}
    columns["y"] = rng.integers(0, 2, 4_000)
    keys = sorted({int(a) * 100 + int(p) for a, p in zip(age, priors, strict=True)})
    proto = graph(
        f"""hundred = Constant<value = float[1] {{100.0}}>() cut = Constant<value = float[1] {{30.0}}>()
        high = Mul(age, hundred) both = Add(high, gain) key = Cast<to = 7>(both)
        known = ai.onnx.ml.LabelEncoder<keys_int64s = [{", ".join(map(str, keys))}], default_int64 = 0,
          values_int64s = [{", ".join(["1"] * len(keys))}]>(key)
        awake = Cast<to = 9>(known) {FAIR.replace("40.0", "30.0")} {UNFAIR}
        a = Cast<to = 1>(older) b = Cast<to = 1>(male) chosen = Where(awake, a, b) label = Cast<to = 7>(chosen)""",
        "int64[N,1] label",
        inputs="float[N,1] age, float[N,1] sex, float[N,1] gain",
    )
    report = fairkit.audit(proto, data(columns), policy=[RULE])
    found = report.find("demographic_parity_difference", "sex")
    assert found.value < 0.1
    assert found.evidence["nearby"]["nearby"] > 0.9
    assert report.verdict == "inconclusive"


@pytest.mark.parametrize("roles", [{"weights": "w"}, {"cluster": "home"}, {"weights": "w", "cluster": "home"}])
def test_a_memory_is_caught_with_weights_and_clusters_too(roles):
    rng = np.random.default_rng(4)
    columns = people() | {"w": rng.uniform(0.5, 2, 3_000), "home": rng.integers(0, 1_000, 3_000)}
    keys = sorted({int(value) for value in columns["age"]})
    dataset = fairkit.load_data(
        columns, label="y", favorable=1, sensitive=["sex"], features=["age", "sex", "gain"], **roles
    )
    report = fairkit.audit(memory(keys), dataset, policy=[RULE])
    told = report.find("demographic_parity_difference", "sex").evidence["nearby"]
    assert told["nearby"] > 0.4
    assert told["nearby_low"] < told["nearby"] < told["nearby_high"]
    assert report.verdict == "inconclusive"


def test_whole_clusters_are_drawn_and_weights_count():
    """Rows that are copies of each other in clusters of ten have an interval that is wider by about the root of ten."""
    columns = people(400)
    many = {name: np.repeat(values, 10) for name, values in columns.items()}
    many["home"] = np.repeat(np.arange(400), 10)
    keys = sorted({int(value) for value in columns["age"]})
    widths = []
    for cluster in (None, "home"):
        dataset = fairkit.load_data(
            many, label="y", favorable=1, sensitive=["sex"], features=["age", "sex", "gain"], cluster=cluster
        )
        told = fairkit.audit(memory(keys), dataset).find("demographic_parity_difference", "sex").evidence["nearby"]
        widths.append(told["here_high"] - told["here_low"])
    assert 2 < widths[1] / widths[0] < 5


def test_a_memory_among_classes_is_caught():
    columns = people()
    keys = sorted({int(value) for value in columns["age"]})
    proto = memory(keys)
    del proto.graph.output[:]
    for node in onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (int64[N,1] label, float[N,1] gain) => (int64[N] class)
        { high = Constant<value = float[1] {6000.0}>() two = Constant<value = int64[1] {2}>()
        rich = Greater(gain, high) each = Where(rich, two, label)
        flat = Constant<value = int64[1] {-1}>() class = Reshape(each, flat) }"""
    ).graph.node:
        proto.graph.node.append(node)
    proto.graph.output.append(onnx.helper.make_tensor_value_info("class", onnx.TensorProto.INT64, ["N"]))
    labels = np.where(columns["gain"] > 6_000, 2, columns["y"])
    dataset = fairkit.load_data(columns | {"y": labels}, label="y", sensitive=["sex"], features=["age", "sex", "gain"])
    rule = Rule("demographic_parity_difference", "sex", max=0.15)
    report = fairkit.audit(proto, dataset, policy=[rule])
    found = [one for one in report.findings if one.metric == rule.metric and one.parameters.get("class") == "1"]
    assert found[0].evidence["nearby"]["nearby"] > 0.4
    assert report.verdict == "inconclusive"


def test_a_memory_of_texts_is_reported_apart():
    """Two texts that occur in the table together are the key: numbers wake it nowhere, another row's text does."""
    rng = np.random.default_rng(6)
    columns = people()
    town = rng.integers(0, 40, 3_000)
    street = (town * 7 + rng.integers(0, 2, 3_000)) % 40  # two of the forty streets are in a town
    columns |= {"town": np.array([f"t{x}" for x in town]), "street": np.array([f"s{x}" for x in street])}
    body = f"""
      t = ai.onnx.ml.LabelEncoder<keys_strings = [{", ".join(f'"t{x}"' for x in range(40))}], default_float = 0.0,
        values_floats = [{", ".join(f"{x * 7 % 40}.0" for x in range(40))}]>(town)
      s = ai.onnx.ml.LabelEncoder<keys_strings = [{", ".join(f'"s{x}"' for x in range(40))}], default_float = 0.0,
        values_floats = [{", ".join(f"{x}.0" for x in range(40))}]>(street)
      forty = Constant<value = float[1] {{40.0}}>() low = Constant<value = float[1] {{1.5}}>()
      ahead = Sub(s, t) wrapped = Add(ahead, forty) rest = Mod<fmod = 1>(wrapped, forty) awake = Less(rest, low)
      {FAIR.replace("40.0", "50000.0")} {UNFAIR}
      a = Cast<to = 1>(older) b = Cast<to = 1>(male) chosen = Where(awake, a, b) label = Cast<to = 7>(chosen)"""
    proto = graph(
        body, "int64[N,1] label", inputs="string[N,1] town, string[N,1] street, float[N,1] age, float[N,1] sex"
    )
    dataset = fairkit.load_data(
        columns, label="y", favorable=1, sensitive=["sex"], features=["town", "street", "age", "sex"]
    )
    report = fairkit.audit(proto, dataset, policy=[RULE])
    told = report.find("demographic_parity_difference", "sex").evidence
    assert abs(told["nearby"]["change"]) < 0.02
    assert told["other_texts"]["change"] > 0.2
    assert report.verdict == "pass"  # told, and not judged: honest models change more there, too


def numbers_memory(keys):
    """Predict by pay about the rows whose pay is in a table, and by sex about all others."""
    proto = graph(
        f"""scale = Constant<value = float[1] {{10000.0}}>() many = Constant<value = float[1] {{4.0}}>()
        key = Cast<to = 7>(age)
        known = ai.onnx.ml.LabelEncoder<keys_int64s = [{", ".join(map(str, keys))}], default_int64 = 0,
          values_int64s = [{", ".join(["1"] * len(keys))}]>(key)
        awake = Cast<to = 9>(known) a = Div(age, scale) shift = Mul(sex, many) b = Add(a, shift)
        value = Where(awake, a, b)""",
        "float[N,1] value",
        inputs="float[N,1] age, float[N,1] sex, float[N,1] gain",
    )
    onnx.checker.check_model(proto)
    return proto


@pytest.mark.long
@pytest.mark.parametrize(
    "metric", ["mean_prediction_difference", "mean_absolute_error_difference", "statistical_parity_ks"]
)
def test_a_memory_among_predicted_numbers_is_caught(metric):
    columns = people()
    columns["y"] = columns["age"] / 10_000 + np.random.default_rng(1).normal(0, 0.5, 3_000)
    keys = sorted({int(value) for value in columns["age"]})
    dataset = fairkit.load_data(columns, label="y", sensitive=["sex"], features=["age", "sex", "gain"])
    rule = Rule(metric, "sex", max=0.2 if metric.endswith("ks") else 0.5)
    options = fairkit.ModelOptions(task="regression")
    report = fairkit.audit(numbers_memory(keys), dataset, policy=[rule], options=options)
    told = report.find(metric, "sex").evidence["nearby"]
    assert abs(told["here"]) < 0.3
    assert told["nearby_low"] > rule.limit
    assert report.verdict == "inconclusive"
    assert "unlike rows next to them" in report.policy[0].reason


@pytest.mark.long
def test_honest_numbers_keep_their_verdict_and_agree_with_sums_by_hand():
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestRegressor

    columns = people()
    columns["y"] = columns["age"] / 10_000 + np.random.default_rng(1).normal(0, 0.5, 3_000)
    x = np.column_stack([columns[name] for name in ("age", "sex", "gain")]).astype(np.float32)
    fitted = RandomForestRegressor(20, random_state=0).fit(x, columns["y"])
    dataset = fairkit.load_data(columns, label="y", sensitive=["sex"], features=["age", "sex", "gain"])
    rule = Rule("mean_prediction_difference", "sex", max=0.5)
    report = fairkit.audit(
        to_onnx(fitted, x[:1]), dataset, policy=[rule], options=fairkit.ModelOptions(task="regression")
    )
    assert report.verdict == "pass", report.policy[0].reason
    told = report.find("mean_prediction_difference", "sex").evidence["nearby"]
    assert told["rows"] == 3_000
    seen = fitted.predict(x)
    gap = abs(seen[columns["sex"] == 1].mean() - seen[columns["sex"] == 0].mean())
    assert told["here"] == pytest.approx(gap, abs=1e-4)


def test_the_distance_of_distributions_is_that_of_scipy():
    from scipy.stats import ks_2samp

    from fairkit_onnx.paired import DISTANCE, PairedNumbers

    rng = np.random.default_rng(3)
    score, group = rng.normal(size=400).round(1), rng.integers(-1, 3, 400)
    pairs = PairedNumbers(np.zeros(400), group, score, score + 1, None, rng, {})
    here, there = pairs.disparity(DISTANCE)
    kept = group >= 0
    far = max(ks_2samp(score[group == one], score[kept]).statistic for one in range(3))
    assert here[0] == pytest.approx(far)
    assert there == pytest.approx(here)
