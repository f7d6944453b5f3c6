"""Files that others exported: each audits as its own library decides, and open questions are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.exports import EXPORTS, NUMBERS, Export, labels_only, matrix, model_of, network, people, sklearn_matrix

import fairkit


@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.name)
def test_the_numbers_are_those_of_the_model_in_memory(export: Export) -> None:
    from sklearn.metrics import accuracy_score, roc_auc_score

    report = fairkit.audit(export.build(), export.data(), options=fairkit.ModelOptions(**export.options))
    truth, decision, score = export.truth, export.decision(), export.score()
    assert report.find("accuracy").value == pytest.approx(accuracy_score(truth, decision), abs=1e-6)
    rate = {group.group: group.value for group in report.find("demographic_parity_difference", "sex").groups}
    for name, value in rate.items():
        assert value == pytest.approx(decision[people()["sex"] == name].mean(), abs=1e-6)
    if score is not None:
        assert report.find("roc_auc").value == pytest.approx(roc_auc_score(truth, score), abs=1e-6)
        assert not any("wrong way round" in text for text in report.warnings)


def test_numbers_0_and_1_that_are_no_class_are_a_question() -> None:
    """`approve` is 1 for the good, `default` is 1 for the bad, and both are numbers: nobody but the user knows."""
    for kind in ("int64", "float"):
        with pytest.raises(fairkit.ModelError, match=r"'approve' is 0 less often.*`favorable_class`: 1 if it is 1"):
            fairkit.audit(network(kind), EXPORTS[0].data())


def test_a_score_that_ranks_the_wrong_way_round_is_told_before_the_numbers() -> None:
    data = fairkit.load_data(people(), label="default", favorable=0, sensitive=["sex"], features=list(NUMBERS))
    options = fairkit.ModelOptions(favorable_class=1)
    report = fairkit.audit(network(), data, options=options)
    area = report.find("roc_auc").value
    assert area is not None
    assert area < 0.3
    assert any(text.startswith(f"The scores rank the wrong way round: ROC-AUC {area:.3f}") for text in report.warnings)
    rng = np.random.default_rng(0)
    noise = people() | {"score": rng.random(len(people()["sex"])), "said": rng.integers(0, 2, len(people()["sex"]))}
    data = fairkit.load_data(noise, label="default", favorable=0, sensitive=["sex"])
    report = fairkit.audit(fairkit.PredictedColumns(score="score"), data)
    assert not any("wrong way" in text for text in report.warnings)


@pytest.mark.parametrize("link", ["Identity", "Sigmoid"])
def test_a_turned_score_decides_ties_as_the_model_does(link: str) -> None:
    """P(default) of exactly one half is a default, whichever of the two labels is called favorable."""
    rng = np.random.default_rng(1)
    number = rng.integers(-3, 4, 1_000).astype(np.float32)
    default = (rng.random(1_000) < 1 / (1 + np.exp(-number))).astype(int)
    table = {"x": number, "default": default, "sex": rng.choice(["f", "m"], 1_000).astype(object)}
    proto = model_of([helper.make_node(link, ["x"], ["p_default"])], {"p_default": 1}, {}, inputs={"x": (1, 1)})
    found = {}
    for favorable in (0, 1):
        data = fairkit.load_data(table, label="default", favorable=favorable, sensitive=["sex"])
        found[favorable] = fairkit.audit(proto, data)
        note = f"{(number == 0).sum():,} of 1,000 rows have exactly the score of the threshold, 0.5; "
        how = "unfavorable" if favorable == 0 else "favorable"
        assert f"{note}their decision is {how}." in found[favorable].model.notes
    assert found[0].find("accuracy").value == found[1].find("accuracy").value
    assert found[0].find("accuracy").value == pytest.approx(((number >= 0) == default).mean())


def test_a_threshold_meets_scores_in_their_own_precision() -> None:
    """0.7 in single precision is below 0.7 in double: a row that shows 0.7 reaches the threshold 0.7."""
    score = np.array([0.7, 0.2] * 50, np.float32)
    table = {"x": score, "y": np.array([1, 0] * 50), "sex": np.array(["f", "f", "m", "m"] * 25, dtype=object)}
    data = fairkit.load_data(table, label="y", favorable=1, sensitive=["sex"])
    proto = model_of([helper.make_node("Identity", ["x"], ["p"])], {"p": 1}, {}, inputs={"x": (1, 1)})
    report = fairkit.audit(proto, data, options=fairkit.ModelOptions(threshold=0.7))
    assert report.find("accuracy").value == 1.0
    assert any(
        note.startswith("50 of 100 rows have exactly the score of the threshold, 0.7") for note in report.model.notes
    )


# Models that leave a question open: the message asks it, and says what to write; nothing ends in an internal error.


def data(**roles: Any) -> fairkit.Dataset:
    return fairkit.load_data(people(), sensitive=["sex"], features=list(NUMBERS), **roles)


def two_targets() -> Any:
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit(matrix(), np.column_stack([people()["default"], people()["x0"]]))


def test_several_targets() -> None:
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression
    from sklearn.multioutput import MultiOutputClassifier

    both = np.column_stack([people()["default"], 1 - people()["default"]])
    several = MultiOutputClassifier(LogisticRegression()).fit(matrix(), both)
    for model, target in ((two_targets(), "x0"), (several, "default")):
        with pytest.raises(fairkit.ModelError, match=r"predicts 2 targets for each row.*name one"):
            fairkit.audit(model, matrix(), people()[target], sensitive_features=people()["sex"])
    with pytest.raises(fairkit.ModelError, match=r"2 numbers for each row.*about one target: name one"):
        fairkit.audit(to_onnx(two_targets(), matrix()[:1], target_opset=17), data(label="x0"))


def test_text_classes_without_a_label() -> None:
    models: list[onnx.ModelProto] = [
        sklearn_matrix("word", "logistic", zipmap=True),
        sklearn_matrix("word", "logistic", zipmap=False),
        labels_only("word"),
    ]
    for model in models:
        with pytest.raises(fairkit.ModelError, match=r"good for the person, 'approved' or 'denied'\?") as caught:
            fairkit.audit(model, data())
        assert "None" not in str(caught.value)
        assert str(caught.value).endswith("as in `favorable=approved`")
        fairkit.audit(model, data(favorable="approved"))


def test_a_ranker_is_asked_for_its_queries() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    convert = pytest.importorskip("onnxmltools").convert
    from onnxmltools.convert.common.data_types import FloatTensorType

    few = {"n_estimators": 5, "verbose": -1, "n_jobs": 1}
    ranker = lightgbm.LGBMRanker(**few).fit(matrix(), people()["default"], group=[20] * (len(matrix()) // 20))
    proto = convert.convert_lightgbm(ranker, initial_types=[("input", FloatTensorType([None, 4]))], target_opset=15)
    with pytest.raises(fairkit.ModelError, match=r"a ranking, or.*give the column of queries with `query`"):
        fairkit.audit(proto, data(label="default", favorable=0))


# The promise of the first page: LightGBM trained on Adult's train part, its ONNX file audited on the test part.
FEATURES = ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]


@pytest.mark.long
def test_numbers_are_fairlearns(public_data: Path, tmp_path: Path) -> None:
    import fairlearn.metrics as flm
    import lightgbm
    import pandas as pd
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType
    from sklearn.metrics import accuracy_score, roc_auc_score

    frame = pd.read_parquet(public_data / "adult.parquet")
    train, test = frame[frame["split"] == "train"], frame[frame["split"] == "test"]
    model = lightgbm.LGBMClassifier(n_estimators=60, n_jobs=1, verbose=-1)
    model.fit(train[FEATURES].to_numpy(np.float32), (train["income"] == ">50K").astype(int))
    proto = convert_lightgbm(
        model, initial_types=[("X", FloatTensorType([None, len(FEATURES)]))], target_opset=15, zipmap=False
    )
    onnx.save(proto, tmp_path / "adult.onnx")
    test.to_csv(tmp_path / "test.csv", index=False)
    data = fairkit.load_data(
        tmp_path / "test.csv", label="income", favorable=">50K", sensitive=["sex", "race"], features=FEATURES
    )
    report = fairkit.audit(tmp_path / "adult.onnx", data)
    assert report.data.rows == 16_281

    score = model.predict_proba(test[FEATURES].to_numpy(np.float32))[:, 1]
    truth, decision = (test["income"] == ">50K").to_numpy(int), (score > 0.5).astype(int)
    for split in ("sex", "race"):
        given = {"y_true": truth, "y_pred": decision, "sensitive_features": test[split]}
        for name in ("demographic_parity", "equalized_odds", "equal_opportunity"):
            for kind in ("difference", "ratio"):
                true = getattr(flm, f"{name}_{kind}")(truth, decision, sensitive_features=test[split])
                assert report.find(f"{name}_{kind}", split).value == pytest.approx(true, abs=1e-12)
        accuracy = flm.MetricFrame(metrics=accuracy_score, **given)
        groups = {group.group: group.value for group in report.find("accuracy_difference", split).groups}
        assert groups == pytest.approx(accuracy.by_group.to_dict(), abs=1e-12)
    assert report.find("roc_auc").value == pytest.approx(roc_auc_score(truth, score), abs=1e-6)
