"""`dif` with method=gradient: graphs read into torch, and people outside of the sample."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest

import fairkit
from fairkit.errors import ModelError
from fairkit_individual.gradients import TorchClassifier

FEATURES = ["age", "hours", "male"]
FAVORABLE = fairkit.ModelOptions(favorable_class=1, score_kind="logit")
"""The networks are drawn, not trained: their scores do not tell what they are about."""


def people(n=400, seed=0):
    rng = np.random.default_rng(seed)
    male = rng.integers(0, 2, n).astype(float)
    columns = {"age": rng.normal(40, 10, n), "hours": 38 + 6 * male + rng.normal(0, 6, n), "male": male}
    rich = 0.06 * (columns["age"] - 40) + 0.12 * (columns["hours"] - 40) + rng.normal(size=n) > 0
    return columns | {"rich": np.where(rich, "yes", "no").astype(object)}


def dataset(columns):
    return fairkit.load_data(
        columns, label="rich", favorable="yes", sensitive=["male"], features=FEATURES, name="people"
    )


def net(seed=0, outputs=1):
    torch = pytest.importorskip("torch")

    torch.manual_seed(seed)
    inner = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, outputs))
    first = torch.nn.Linear(3, 3)
    first.weight.data = torch.diag(torch.tensor([0.1, 0.15, 2.0]))
    first.bias.data = torch.tensor([-4.0, -6.0, -1.0])
    return torch.nn.Sequential(first, *inner)


def exported(module):
    torch = pytest.importorskip("torch")

    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            (torch.zeros(2, 3),),
            stream,
            input_names=["X"],
            output_names=["Y"],
            dynamic_axes={"X": {0: "n"}, "Y": {0: "n"}},
            opset_version=15,
            dynamo=False,
        )
    return stream.getvalue()


def audit(model, data, options=None, **how):
    parameters = {"dif": {"method": "gradient", "epsilon": [0.05]} | how}
    return fairkit.audit(model, data, auditors=["dif"], parameters=parameters, options=options)


@pytest.mark.long
def test_a_network_is_searched_outside_the_sample_and_both_numbers_are_told():
    data = dataset(people())
    found = audit(exported(net()), data, FAVORABLE).find("dif")
    plain = fairkit.audit(
        exported(net()), data, auditors=["dif"], parameters={"dif": {"epsilon": [0.05]}}, options=FAVORABLE
    ).find("dif")
    assert found.evidence["restricted"] == pytest.approx(plain.value)
    assert found.value == max(found.evidence["restricted"], found.evidence["gradient"])
    assert found.value > plain.value * 1.05
    assert found.interval[0] <= found.value <= found.interval[1]
    assert found.evidence["upper_confidence_bound"] >= found.value
    assert found.evidence["outside"][0]["difference"] > 0
    assert "lower bound of the supremum" in found.notes[0]


@pytest.mark.parametrize(("difference", "share"), [("mean", 0.25), ("single", 1.0)])
def test_the_number_of_a_linear_model_is_known(difference, share):
    torch = pytest.importorskip("torch")

    columns = people(600)
    data = dataset(columns)
    module = torch.nn.Linear(3, 1)
    module.weight.data, module.bias.data = torch.tensor([[0.05, 0.1, 0.3]]), torch.tensor([-6.0])
    how = {"fair_metric": "euclidean", "columns": ["age", "hours", "male"], "difference": difference}
    found = audit(exported(module), data, FAVORABLE, **how).find("dif")
    # E (w t)^2 under E |t|^2 = ε; of both logits (-s/2, s/2) a quarter of that
    known = share * 0.05 * (0.05**2 + 0.1**2 + 0.3**2)
    assert found.evidence["gradient"] == pytest.approx(known, rel=0.02)
    assert found.evidence["gradient"] <= known * (1 + 1e-6)
    assert found.parameters.get("difference") == ("mean" if difference == "mean" else None)


@pytest.mark.long
@pytest.mark.parametrize("method", ["sample", "gradient"])
def test_one_logit_and_two_that_mean_the_same_get_one_number(method):
    data = dataset(people())
    both = net(outputs=2)
    one = net(outputs=1)
    one.load_state_dict(both.state_dict() | {"3.weight": both[3].weight.diff(dim=0), "3.bias": both[3].bias.diff()})
    models = [TorchClassifier(module, FEATURES, ["no", "yes"]) for module in (both, one)]
    # over the rows the file is asked, whose two logits are there to see
    found = [audit(model, data, method=method).find("dif").value for model in models]
    found.append(audit(exported(both), data, FAVORABLE, method=method).find("dif").value)
    assert found[1:] == pytest.approx(found[:1] * 2, rel=1e-3)
    assert found[0] > 0.01


@pytest.mark.long
def test_a_torch_module_and_its_file_get_the_same_number():
    data, module = dataset(people()), net()
    from_file = audit(exported(module), data, FAVORABLE).find("dif").value
    model = TorchClassifier(module, FEATURES, ["no", "yes"])
    assert audit(model, data).find("dif").value == pytest.approx(from_file, rel=1e-3)


def test_a_model_of_ours_in_memory_is_opened():
    columns = people()
    x = np.column_stack([columns[name] for name in FEATURES])
    model = fairkit.mitigator("sensei")(epochs=1, fair_metric="subspace", learner=None)
    model.fit(x, columns["rich"], sensitive_features=columns["male"])
    renamed = {f"x{place}": columns[name] for place, name in enumerate(FEATURES)} | {"rich": columns["rich"]}
    data = fairkit.load_data(renamed, label="rich", favorable="yes", sensitive=["x2"])
    in_memory, in_file = (audit(one, data, queries=40).find("dif") for one in (model, model.to_onnx()))
    assert in_memory.value == pytest.approx(in_file.value, rel=1e-2)


@pytest.mark.parametrize("task", ["logistic", "mlp"])
def test_files_of_fairkit_s_learners_are_read_back(task):
    from fairkit.mitigators import Run, Table
    from fairkit_onnx.write.export import export
    from fairkit_repair.learners import fit_learner
    from fairkit_testing.samples import sample_data

    data = sample_data(rows=400)
    table = Table.from_dataset(data)
    content = export(fit_learner(task, table, Run()), table).SerializeToString()
    found = audit(content, data, queries=40).find("dif")
    assert found.evidence["gradient"] > 0


def test_operators_give_what_onnxruntime_gives():
    torch = pytest.importorskip("torch")

    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    from fairkit_individual.gradients import find_head

    rng = np.random.default_rng(0)
    w = rng.normal(size=(4, 3)).astype(np.float32)
    constants = {
        "w": w, "b": rng.normal(size=3).astype(np.float32), "shape": np.array([0, -1]), "lo": np.float32(-1),
        "hi": np.float32(1), "axes": np.array([1]), "place": np.array([2, 0]), "two": np.float32(2),
        "scale": np.ones(4, np.float32), "mean": np.zeros(4, np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Erf", ["X"], ["a0"]),
        helper.make_node("Mul", ["X", "a0"], ["a1"]),
        helper.make_node("BatchNormalization", ["a1", "scale", "mean", "mean", "scale"], ["a2"]),
        helper.make_node("Gemm", ["a2", "w", "b"], ["a3"], alpha=0.5, beta=2.0),
        helper.make_node("Clip", ["a3", "lo", "hi"], ["a4"]),
        helper.make_node("LeakyRelu", ["a4"], ["a5"], alpha=0.1),
        helper.make_node("Elu", ["a5"], ["a6"]),
        helper.make_node("Softplus", ["a6"], ["a7"]),
        helper.make_node("Gather", ["a7", "place"], ["a8"], axis=1),
        helper.make_node("Concat", ["a8", "a7"], ["a9"], axis=1),
        helper.make_node("Unsqueeze", ["a9", "axes"], ["a10"]),
        helper.make_node("Squeeze", ["a10", "axes"], ["a11"]),
        helper.make_node("Reshape", ["a11", "shape"], ["a12"]),
        helper.make_node("Flatten", ["a12"], ["a13"]),
        helper.make_node("Pow", ["a13", "two"], ["a14"]),
        helper.make_node("Cast", ["a14"], ["a15"], to=1),
        helper.make_node("LogSoftmax", ["a15"], ["a16"], axis=1),
        helper.make_node("Exp", ["a16"], ["a17"]),
        helper.make_node("Softmax", ["a17"], ["Y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 4])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [None, None])],
        initializer=[numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    onnx.checker.check_model(proto)
    head = find_head(proto, "Y", "g")
    assert head.features == "X"
    x = rng.normal(size=(6, 4)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"X": x})[0]
    assert np.abs(head(torch.from_numpy(x.astype(float))).numpy() - wanted).max() < 1e-5


@pytest.mark.long
def test_trees_have_no_gradient():
    from fairkit_testing.samples import sample_data

    data = sample_data(rows=300)
    from fairkit.mitigators import Run, Table
    from fairkit_onnx.write.export import export
    from fairkit_repair.learners import fit_learner

    table = Table.from_dataset(data)
    content = export(fit_learner("forest", table, Run()), table).SerializeToString()
    with pytest.raises(ModelError, match="ensemble of trees, which has no gradient; use method=sample"):
        audit(content, data)


def test_a_metric_that_the_features_do_not_give_is_refused_by_column(tmp_path):
    from fairkit_similarity import learn

    columns = people()
    columns["height"] = np.random.default_rng(5).normal(size=len(columns["age"]))
    metric = learn.euclidean({name: columns[name] for name in ("age", "height")})
    metric.save(tmp_path / "metric.json")
    with pytest.raises(ModelError, match="reads 'hours', 'male', which the metric does not have"):
        audit(exported(net()), dataset(columns), FAVORABLE, fair_metric=str(tmp_path / "metric.json"))


@pytest.mark.long
def test_estimators_without_a_gradient_are_refused():
    from sklearn.linear_model import LogisticRegression

    columns = people()
    x = np.column_stack([columns[name] for name in FEATURES])
    model = LogisticRegression(max_iter=2000).fit(x, columns["rich"])
    with pytest.raises(ModelError, match="needs a torch module or an ONNX file"):
        audit(model, dataset(columns))
