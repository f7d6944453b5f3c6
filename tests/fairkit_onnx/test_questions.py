"""Models that leave a question open: the message asks it, and says what to write; nothing ends in an internal error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.exports import NUMBERS, labels_only, matrix, people, sklearn_matrix

import fairkit

if TYPE_CHECKING:
    import onnx


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
