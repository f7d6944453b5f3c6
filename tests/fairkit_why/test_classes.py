"""Groups that conditions describe, and outcomes of several classes."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.data.loading import load_data
from fairkit.errors import DataError, FairkitError, ParameterError
from fairkit.results.findings import texts_of
from fairkit.settings import ModelOptions
from fairkit_onnx.file import OnnxModel
from fairkit_why.exact_trees import read_exact
from fairkit_why.permutation_walks import OneClass

from .conftest import trained

NUMBERS = ["income", "debt", "years"]
CLASSES = ["full", "none", "part"]


def people(rows=600, seed=0):
    import pandas as pd

    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.integers(0, 6, rows).astype(np.float32) for name in NUMBERS})
    frame["sex"] = rng.choice(["f", "m"], rows)
    frame["income"] += 2 * (frame["sex"] == "m")
    reach = frame["income"] - frame["debt"] + rng.normal(size=rows)
    frame["grant"] = np.array(CLASSES)[np.digitize(reach, [0, 2])]
    return frame.astype(dict.fromkeys(NUMBERS, np.float32))


def file_of(estimator, *, shares=False):
    """Train on three classes and return an ONNX file; with `shares`, a regressor of three targets."""
    from skl2onnx import to_onnx

    frame = people()
    x = frame[NUMBERS].to_numpy()
    y = np.stack([frame["grant"] == name for name in CLASSES], axis=1) if shares else frame["grant"]
    options = {} if shares else {id(estimator): {"zipmap": False}}
    fitted = estimator.fit(x, y.astype(float) if shares else y)
    return to_onnx(fitted, x[:1], options=options, target_opset={"": 15, "ai.onnx.ml": 3}).SerializeToString()


def estimators():
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier, RandomForestRegressor
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    small = {"n_estimators": 6, "max_depth": 3, "random_state": 0}
    return {
        "forest": (RandomForestClassifier(**small), {}),
        "extra trees": (ExtraTreesClassifier(**small), {}),
        "tree": (DecisionTreeClassifier(max_depth=4), {}),
        "forest of three targets": (RandomForestRegressor(**small), {"shares": True}),
        "logistic": (LogisticRegression(), {}),
    }


def own_file(kind):
    """Train fairkit's own learner on three classes."""
    from fairkit.data.table import Table
    from fairkit.fitted import Run
    from fairkit_repair.learners import fit_learner

    settings = {"n_estimators": 5} if kind != "logistic" else {}
    data = fairkit.load_data(people(), label="grant", favorable="full", sensitive=["sex"], features=NUMBERS)
    table = Table.from_dataset(data, "multiclass")
    return fit_learner(kind, table, Run(seed=0, threads=1), settings=settings).to_onnx().SerializeToString()


def bound(raw, index, **options):
    data = fairkit.load_data(
        people(60, 5), label="grant", favorable=CLASSES[index], sensitive=["sex"], features=NUMBERS
    )
    scorer = OnnxModel.load(raw).bind(data, ModelOptions(**options))
    assert scorer.task == "multiclass"
    return OneClass(scorer, [str(value) for value in scorer.classes].index(CLASSES[index]))


@pytest.mark.long
@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize(
    "name",
    [
        "forest",
        "extra trees",
        "tree",
        "forest of three targets",
        "logistic",
        "own lightgbm",
        "own xgboost",
        "own logistic",
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_classs_score_is_divided_as_by_enumeration(oracle, name, index):
    """Of a softmax: log p_c less the mean log p, which the file's probabilities alone tell."""
    if name.startswith("own"):
        raw = own_file(name.split()[1])
    else:
        estimator, settings = estimators()[name]
        raw = file_of(estimator, **settings)
    scorer = bound(raw, index, classes=CLASSES if "targets" in name or "own" in name else None)
    frame = people(60, 5)
    columns = {column: frame[column].to_numpy() for column in scorer.columns}
    score = read_exact(scorer, columns, [(column,) for column in columns])
    assert not isinstance(score, str), score
    prepared = score.prepare(columns)
    a, b = np.arange(6), np.arange(6, 13)
    found = score.attribution(prepared[:, a].copy(), prepared[:, b].copy(), (None, None), (np.arange(6), np.arange(7)))
    softmax = "forest" not in name and "tree" not in name.split()

    def f(rows):
        some = dict(zip(columns, rows.T.astype(np.float32), strict=True))
        chances = scorer.scorer.predict(some).probabilities
        if not softmax or name == "extra trees":
            return chances[:, scorer.index]
        logs = np.log(chances)
        return logs[:, scorer.index] - logs.mean(axis=1)

    table = np.stack(list(columns.values()), axis=1)
    pairs = oracle.shapley_of_pairs(f, table[a], table[b], [[j] for j in range(len(columns))])
    near = 1e-6 if not softmax else 2e-5  # a logarithm of float32 probabilities
    assert np.abs(found.values - pairs.mean(axis=(0, 1))).max() < near
    assert np.abs(found.rows[0] - pairs.mean(axis=1)).max() < 5 * near


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_an_audit_divides_the_favorable_class(tmp_path):
    (tmp_path / "m.onnx").write_bytes(own_file("lightgbm"))
    frame = people(1_500, 7)
    roles = {"label": "grant", "sensitive": ["sex"], "features": NUMBERS}
    settings = {
        "auditors": ["why"],
        "options": ModelOptions(classes=CLASSES),
        "parameters": {"why": {"allowed": ("debt",)}},
    }
    report = fairkit.audit(tmp_path / "m.onnx", fairkit.load_data(frame, favorable="full", **roles), **settings)
    assert {f.parameters["class"] for f in report.findings} == {"full"}
    decision, score = (
        next(f for f in report.findings if f.metric == "attribution" and f.parameters["of"] == of)
        for of in ("decision", "score")
    )
    scorer = bound(own_file("lightgbm"), 0, classes=CLASSES)
    said = scorer.predict({name: frame[name].to_numpy() for name in NUMBERS}).decision
    means = [said[frame["sex"] == sex].mean() for sex in ("f", "m")]
    assert abs(decision.value) == pytest.approx(abs(means[0] - means[1]), abs=1e-9)
    for finding in (decision, score):
        parts = {part["column"]: part["value"] for part in finding.evidence["columns"]}
        assert sum(parts.values()) == pytest.approx(finding.value, abs=1e-9)
        assert max(parts, key=lambda name: abs(parts[name])) == "income"  # the groups differ in nothing else
    assert score.evidence["method"] == "exact"
    assert decision.evidence["method"] == "sampled"
    bases = [f for f in report.findings if f.metric.endswith("_part")]
    assert sum(f.value for f in bases) == pytest.approx(decision.value, abs=1e-9)
    assert any(f.metric == "unexplained_difference" for f in report.findings)


@pytest.mark.filterwarnings("ignore")
def test_without_a_favorable_class_it_is_asked_for(tmp_path):
    (tmp_path / "m.onnx").write_bytes(own_file("lightgbm"))
    data = fairkit.load_data(people(), label="grant", sensitive=["sex"], features=NUMBERS)
    with pytest.raises((ParameterError, DataError), match=r"`favorable` \(full, none, part\)"):
        fairkit.audit(tmp_path / "m.onnx", data, auditors=["why"], options=ModelOptions(classes=CLASSES))


# A group that conditions describe, against a column that says it.
ROLES = {"label": "y", "favorable": 1, "sensitive": ["sex"]}


def table(seed, rows=2_500, who=0.0, given=0.0):
    """Return people whose x is larger by `who`, and whose chance of y at the same x is larger by `given`, if male."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    male = rng.random(rows) < 0.5
    x = rng.normal(size=rows) + 0.4 * male + who * male
    y = rng.random(rows) < 1 / (1 + np.exp(-(x + given * male)))
    sex = np.where(male, "m", "f").astype(object)
    return pd.DataFrame({"x": x, "z": rng.normal(size=rows), "sex": sex, "y": y.astype(int)})


@pytest.fixture(scope="module")
def model():
    return trained(table(0), ["x", "z"], "logistic", label="y", favorable=1)


def test_a_group_of_conditions_is_that_of_a_column(model):
    frame = table(3)
    inside = frame["x"].between(-0.5, 0.8) & (frame["sex"] == "f")
    named = frame.assign(group=np.where(inside, "in", "out"))
    told = {"metric": ["score"], "people": ["x=-0.5:0.8", "sex=f"]}
    report = fairkit.audit(model, load_data(frame, **ROLES), auditors=["why"], parameters={"why": told})
    mine = next(f for f in report.findings if f.sensitive is None)
    roles = ROLES | {"sensitive": ["group"], "reference": "group=out"}
    own = fairkit.audit(
        model, load_data(named, **roles), auditors=["why"], parameters={"why": {"metric": ["score"]}}
    ).findings[0]
    assert mine.value == pytest.approx(own.value)
    assert mine.groups[0].group == "x -0.5 to 0.8, sex = f"
    assert mine.groups[0].rows == inside.sum()
    parts = [{p["column"]: p["value"] for p in one.evidence["columns"]} for one in (mine, own)]
    assert parts[0] == pytest.approx(parts[1])


@pytest.mark.parametrize("text", ["x", "=1:2", "nobody=1"])
def test_conditions_that_are_none_are_one_sentence(model, text):
    told = {"why": {"people": [text]}}
    with pytest.raises(FairkitError, match=r"why\.people") as raised:
        fairkit.audit(model, load_data(table(3, 300), **ROLES), auditors=["why"], parameters=told)
    assert "\n" not in str(raised.value)


def test_conditions_are_written_as_they_are_read():
    conditions = [
        {"column": "a", "low": 1.5, "high": None},
        {"column": "b", "value": None},
        {"column": "c", "value": "x"},
    ]
    assert texts_of(conditions) == ["a=1.5:", "b=", "c=x"]
