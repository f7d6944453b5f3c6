from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest

from fairkit.data.roles import Roles
from fairkit.errors import DataError, ModelError, ParameterError
from fairkit.learners import LEARNERS
from fairkit.mitigators import FittedModel, Prediction, Run, Table
from fairkit_onnx.file import open_session
from fairkit_onnx.write.encode import fit_encoder
from fairkit_onnx.write.export import TabularModel, check_parity, export, run_columns
from fairkit_onnx.write.graph import ML_OPSET, OPSET
from fairkit_repair.learners import fit_estimator, fit_learner


def table(task="binary", n=400, seed=0):
    rng = np.random.default_rng(seed)
    job = rng.choice(np.array(["nurse", "baker", "smith"], dtype=object), n)
    job[rng.random(n) < 0.1] = None
    age = rng.integers(18, 80, n)
    pay = np.where(rng.random(n) < 0.1, np.nan, rng.lognormal(3, 1, n))
    signal = 0.05 * (age - 45) + (job == "smith") + rng.normal(size=n)
    target = {
        "binary": (signal > 0).astype(float),
        "multiclass": np.digitize(signal, [-1, 1]).astype(float),
        "regression": 1000 + 50 * signal,
    }[task]
    return Table(
        columns={"job": job, "age": age, "pay-check": pay},
        features=("job", "age", "pay-check"),
        target=target,
        task=task,
        weights=rng.random(n) + 0.5,
        roles=Roles(label="good", favorable="yes"),
        classes=("no", "yes"),
    )


CASES = [
    (name, task)
    for name in LEARNERS
    for task in ("binary", "multiclass", "regression")
    if not (name == "linear" and task != "regression") and not (name == "logistic" and task == "regression")
]
FAST = {
    "lightgbm": {"n_estimators": 15},
    "xgboost": {"n_estimators": 15},
    "forest": {"n_estimators": 10},
    "mlp": {"max_iter": 5, "early_stopping": False},
}


@pytest.mark.long
@pytest.mark.parametrize(("name", "task"), CASES)
def test_every_learner_exports_within_parity_on_new_rows(name, task):
    train, new = table(task), table(task, seed=1)
    model = fit_learner(name, train, Run(threads=1), settings=FAST.get(name))
    proto = export(model, train)
    new.columns["job"][:5] = "never seen"
    assert check_parity(proto, model, new.columns) < 1e-5
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    assert versions == {"": OPSET, "ai.onnx.ml": ML_OPSET}
    assert [entry.name for entry in proto.graph.input] == ["job", "age", "pay-check"]


def test_the_file_carries_its_settings_and_gives_decisions():
    train = table()
    model = fit_learner("lightgbm", train, Run(threads=1), settings=FAST["lightgbm"])
    proto = export(model, train, {"mitigation": {"plugin": "none"}})
    settings = json.loads(next(entry.value for entry in proto.metadata_props if entry.key == "fairkit"))
    assert settings["label"] == "good"
    assert settings["favorable"] == "yes"
    assert settings["features"] == ["job", "age", "pay-check"]
    assert settings["mitigation"] == {"plugin": "none"}
    found = run_columns(open_session(proto, threads=1), train.columns)
    assert found["decision"].dtype == np.int64
    np.testing.assert_array_equal(found["decision"], (found["score"] >= 0.5).astype(int))
    np.testing.assert_array_equal(found["decision"], found["decision_probability"])


def test_same_inputs_same_bytes():
    first, second = (
        export(fit_learner("lightgbm", table(), Run(threads=1), settings=FAST["lightgbm"]), table()).SerializeToString(
            deterministic=True
        )
        for _ in range(2)
    )
    assert first == second


def test_weights_change_the_model():
    train = table()
    heavy = train.with_weights(np.where(train.target == 1, 10.0, 1.0))
    light, tilted = (fit_learner("logistic", one, Run()).predict(train.columns).score.mean() for one in (train, heavy))
    assert tilted > light + 0.1


@pytest.mark.parametrize("outputs", [1, 2])
def test_torch_modules_export_behind_the_encoder(outputs):
    import torch

    train = table()
    encoder = fit_encoder(train.columns, train.features, text="onehot", standardise=True, fill=True)
    torch.manual_seed(0)
    width = len(encoder.names)
    module = torch.nn.Sequential(torch.nn.Linear(width, 8), torch.nn.ReLU(), torch.nn.Linear(8, outputs))
    model = TabularModel(encoder=encoder, estimator=module, task="binary")
    assert check_parity(export(model, train), model, table(seed=2).columns) < 1e-5


def test_a_torch_module_of_the_wrong_shape_is_refused():
    import torch

    train = table()
    encoder = fit_encoder(train.columns, train.features, text="onehot", fill=True)
    model = TabularModel(encoder=encoder, estimator=torch.nn.Flatten(0), task="binary")
    with pytest.raises(ModelError, match="it must give"):
        model.to_onnx()


def test_any_scikit_learn_estimator_goes_through_skl2onnx():
    from sklearn.naive_bayes import GaussianNB

    train = table()
    encoder = fit_encoder(train.columns, train.features, text="onehot", standardise=True, fill=True)
    estimator = GaussianNB(var_smoothing=0.1).fit(encoder.transform(train.columns), train.target.astype(int))
    model = TabularModel(encoder=encoder, estimator=estimator, task="binary")
    assert check_parity(export(model, train), model, train.columns) < 1e-5


@dataclass(frozen=True)
class Liar(FittedModel):
    """A model whose file says something else."""

    inner: FittedModel
    by: float
    details: dict = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def predict(self, columns):
        found = self.inner.predict(columns)
        return Prediction(score=found.score + self.by, decision_probability=found.decision_probability)

    def to_onnx(self):
        return self.inner.to_onnx()


def test_a_file_that_differs_from_memory_is_an_error():
    train = table()
    inner = fit_learner("logistic", train, Run())
    export(Liar(inner, 5e-6), train)
    with pytest.raises(ModelError, match="differs from the model in memory by up to 2e-05"):
        export(Liar(inner, 2e-5), train)


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        ("lightgb", "binary", "Did you mean 'lightgbm'"),
        ("linear", "binary", "for classes use 'logistic'"),
        ("logistic", "regression", "for numbers use 'linear'"),
    ],
)
def test_learners_for_other_tasks_are_refused(name, task, message):
    with pytest.raises(ParameterError, match=message):
        fit_learner(name, table(task), Run())


def test_one_class_is_nothing_to_learn():
    train = table()
    with pytest.raises(DataError, match="same class in 'good'"):
        fit_learner("logistic", train.take(train.target == 1), Run())


def test_fit_estimator_works_on_a_plain_matrix():
    X = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    y = (X[:, 0] > 0).astype(float)
    estimator = fit_estimator("logistic", X, y, weights=None, task="binary", run=Run())
    assert (estimator.predict(X) == y).mean() > 0.9


def test_the_graph_is_valid_onnx_without_custom_domains():
    proto = export(fit_learner("forest", table(), Run(threads=1), settings=FAST["forest"]), table())
    onnx.checker.check_model(proto, full_check=True)
    assert {node.domain for node in proto.graph.node} <= {"", "ai.onnx.ml"}
