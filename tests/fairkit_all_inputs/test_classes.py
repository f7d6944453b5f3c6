"""Three classes: witnesses of the whole grid in onnxruntime, certificates, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

import fairkit
from fairkit.errors import DataError, ModelError, ParameterError
from fairkit.mitigators import Run, Table
from fairkit.results.findings import Finding
from fairkit_all_inputs.bounds.problem import FLIP as FLIP_KIND
from fairkit_onnx.structure.ensemble import read_class_ensembles
from fairkit_onnx.write.export import export
from fairkit_registry.evidence.predicate import public_findings
from fairkit_registry.evidence.recompute import compare_reports
from fairkit_repair.learners import fit_learner

from .test_all_inputs import trusted
from .test_odd_models import GRID, NAMES, people

CLASSES = ["high", "low", "middle"]


def table():
    import pandas as pd

    values, level = people()
    values = np.vstack([values, [[0, 20, 0], [1, 29, 7]]]).astype(int)
    level = np.append(level, [0.0, 0.0])
    names = np.array(["low", "middle", "high"])[np.digitize(level, [-1.0, 3.0])]
    return pd.DataFrame(values, columns=NAMES).assign(y=names)


def trained(kind):
    """A model of the classes by number, in the order of their names, and its file."""
    data = table()
    matrix, codes = data[NAMES].to_numpy(np.float32), np.searchsorted(CLASSES, data["y"])
    if kind == "forest":
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import FloatTensorType
        from sklearn.ensemble import RandomForestClassifier

        model = RandomForestClassifier(7, max_depth=5, random_state=2).fit(matrix, data["y"])
        return to_onnx(model, initial_types=[("x", FloatTensorType([None, 3]))], options={"zipmap": False},
                       target_opset={"": 15, "ai.onnx.ml": 3})  # fmt: skip
    from onnxmltools import convert_lightgbm, convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType as Floats

    if kind == "xgboost":
        xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
        model = xgboost.XGBClassifier(n_estimators=6, max_depth=3, n_jobs=1).fit(matrix, codes)
        return convert_xgboost(model, initial_types=[("x", Floats([None, 3]))], target_opset=15)
    lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    model = lightgbm.LGBMClassifier(n_estimators=6, num_leaves=6, verbose=-1, n_jobs=1).fit(matrix, codes)
    return convert_lightgbm(model, initial_types=[("x", Floats([None, 3]))], target_opset=15, zipmap=False)


def own(path, learner="lightgbm"):
    """A file that fairkit writes: one input for each column, and a regressor with a target for each class."""
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    data = fairkit.load_data(table(), label="y", sensitive=["sex"], features=NAMES)
    rows = Table.from_dataset(data)
    model = fit_learner(learner, rows, Run(seed=0, threads=1), settings={"n_estimators": 6, "num_leaves": 6})
    proto = export(model, rows)
    path.write_bytes(proto.SerializeToString())
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    fed = {name: GRID[:, [place]].astype(np.float32) for place, name in enumerate(NAMES)}
    return proto, session.run(["probabilities"], fed)[0].reshape(2, -1, 3)


@pytest.mark.long
def test_a_file_that_fairkit_wrote_is_read(tmp_path):
    path = tmp_path / "m.onnx"
    proto, scores = own(path)
    assert "TreeEnsembleRegressor" in [node.op_type for node in proto.graph.node]
    found = audit(proto, path).findings
    label = scores.argmax(axis=2)
    assert found[0].interval == (float((label[0] != label[1]).any()),) * 2
    sums = np.log(scores.astype(np.float64))  # of the sums less the logarithm of the whole
    shift = sums[0] - sums[1]
    gaps = np.abs(shift - shift.mean(axis=1, keepdims=True)).max()
    assert max(one.interval[1] for one in found[1:4]) >= gaps / 2
    changes = {tuple(row) for row in GRID[: len(GRID) // 2, 1:][label[0] != label[1]]}
    mine = [tuple(row) in changes for row in table()[["age", "debts"]].to_numpy(np.float32)]
    assert found[-1].value == pytest.approx(np.mean(mine))


def audit(proto, path, signed=(), options=None, data=None, **settings):
    path.write_bytes(proto.SerializeToString())
    data = table() if data is None else data
    loaded = fairkit.load_data(data, label="y", sensitive=["sex"], features=NAMES)
    return fairkit.audit(
        trusted(path), loaded, auditors=["all-inputs"], signed=signed, options=options,
        parameters={"all-inputs": {"columns": "sex", "people": 1_000, **settings}},
    )  # fmt: skip


def said(path):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    label, scores = session.run(None, {session.get_inputs()[0].name: GRID})
    return np.asarray(label).reshape(2, -1), np.asarray(scores).reshape(2, -1, 3)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["forest", "xgboost", "lightgbm"])
def test_a_change_of_the_class_is_what_onnxruntime_says_of_every_input(tmp_path, kind):
    path = tmp_path / "m.onnx"
    options = None if kind == "forest" else fairkit.ModelOptions(classes=CLASSES)
    found = audit(trained(kind), path, options=options).findings
    label, scores = said(path)
    flip, share = found[0], found[-1]
    assert flip.interval == (float((label[0] != label[1]).any()),) * 2
    assert [one.parameters["class"] for one in found[1:4]] == CLASSES
    told = flip.evidence["witness"]
    told = told[0] if isinstance(told, list) else told
    assert told["class first"] != told["class second"]
    assert "none counts as favorable" in flip.notes[0]
    changes = {tuple(row) for row in GRID[: len(GRID) // 2, 1:][label[0] != label[1]]}
    mine = [tuple(row) in changes for row in table()[["age", "debts"]].to_numpy(np.float32)]
    assert share.value == pytest.approx(np.mean(mine))
    if kind == "forest":  # the sum is the probability
        for place, one in enumerate(found[1:4]):
            best = float(np.abs(scores[0] - scores[1])[:, place].max())
            assert one.interval == pytest.approx((best, best), abs=1e-5)


def lifted(proto):
    """The model with the first class far above the others: sex moves sums, and never the class."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    (node,) = [one for one in made.graph.node if one.op_type == "TreeEnsembleClassifier"]
    for entry in node.attribute:
        if entry.name == "base_values":
            entry.floats[:] = [40.0, *list(entry.floats)[1:]]
    return made


def test_a_proof_that_the_class_never_changes_is_in_the_certificate_and_checked(tmp_path, monkeypatch):
    import fairkit_all_inputs.findings as module

    proto, path = lifted(trained("xgboost")), tmp_path / "m.onnx"
    options = fairkit.ModelOptions(classes=CLASSES)
    report = audit(proto, path, options=options)
    assert report.findings[0].interval == (0.0, 0.0)
    assert report.findings[1].interval[1] > 0.0
    assert report.findings[-1].interval == (0.0, 0.0)
    public = [Finding.from_dict(one) for one in
              json.loads(json.dumps(public_findings([f.to_dict() for f in report.findings])))]  # fmt: skip
    assert all("proof" in one.evidence for one in public[:4])

    searched = []
    real = module.answer
    monkeypatch.setattr(
        module, "answer", lambda problem, kind, **more: searched.append(kind) or real(problem, kind, **more)
    )
    assert list(compare_reports(report, audit(proto, path, public, options))) == []
    assert FLIP_KIND not in searched, "a log of changes of the class is checked, and not searched for again"
    forged = replace(public[2], interval=(0.0, public[2].interval[1] / 2),
                     evidence={**public[2].evidence, "proved": public[2].evidence["proved"] / 2})  # fmt: skip
    signed = replace(report, findings=(*public[:2], forged, *public[3:]))
    assert list(compare_reports(signed, audit(proto, path, signed.findings, options)))


@pytest.mark.long
def test_near_finds_fewer_changes_and_a_subspace_is_understood(tmp_path):
    proto = trained("forest")
    whole = audit(proto, tmp_path / "m.onnx", people=8).findings
    for told in ({}, {"fair_metric": "subspace"}):
        near = audit(proto, tmp_path / "m.onnx", near=0.05, people=8, **told).findings
        assert near[0].interval == whole[0].interval == (1.0, 1.0)
        assert near[1].interval[0] <= whole[1].interval[1] + 1e-6
        assert near[-1].value >= whole[-1].value


def test_what_is_not_read_is_one_message(tmp_path):
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.linear_model import LogisticRegression

    data = table()
    linear = LogisticRegression(max_iter=2_000).fit(data[NAMES].to_numpy(np.float32), data["y"])
    proto = to_onnx(linear, initial_types=[("x", FloatTensorType([None, 3]))], options={"zipmap": False})
    with pytest.raises(
        ModelError, match=r"has 3 classes, and scores made by LinearClassifier; .*TreeEnsembleClassifier"
    ):
        audit(proto, tmp_path / "l.onnx")
    with pytest.raises(ParameterError, match=r"one for each class.*leave save_proof out"):
        audit(trained("forest"), tmp_path / "m.onnx", save_proof=str(tmp_path / "p.json"))
    assert not (tmp_path / "p.json").exists()


def test_a_class_that_onnxruntime_leaves_out_is_refused():
    node = onnx.helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2],
        nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[0.5, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        class_treeids=[0] * 5, class_nodeids=[1, 1, 2, 2, 2], class_ids=[0, 1, 0, 1, 2],
        class_weights=[-0.5, -0.4, 0.2, 0.4, 0.4], post_transform="NONE",
    )  # fmt: skip
    with pytest.raises(ModelError, match="leaves without a weight of class 2 in every tree"):
        read_class_ensembles(node)


def test_a_column_that_is_not_used_an_infinite_domain_and_time_that_is_over(tmp_path):
    proto = trained("forest")
    unused = onnx.ModelProto()
    unused.CopyFrom(proto)
    for node in unused.graph.node:
        for entry in node.attribute:
            if entry.name == "nodes_featureids":
                entry.ints[:] = [max(feature, 1) for feature in entry.ints]
    found = audit(unused, tmp_path / "u.onnx", people=5).findings
    assert [one.interval for one in found] == [(0.0, 0.0)] * 3
    assert "No tree splits" in found[0].notes[0]
    for domain, message in (({"debts": "1:inf"}, "finite ends"), ({"debts": "5:4"}, "is empty")):
        with pytest.raises(DataError, match=message):
            audit(proto, tmp_path / "m.onnx", people=5, domain=domain)
    for limit in ({"seconds": 1e-9}, {"boxes": 1}):
        flip, *scores, _ = audit(proto, tmp_path / "m.onnx", people=5, domain={"age": "20:21"}, **limit).findings
        assert flip.interval in ((0.0, 1.0), (1.0, 1.0)), "never a proof that there is none"
        assert all(one.interval[0] <= one.interval[1] for one in scores)


def test_a_tree_of_the_changing_column_alone_flips_a_class():
    """Its leaves are numbers at each value, and no tree that differs in a box: the search must see them too."""
    from fairkit_testing.samples import sample_data, sample_model

    report = fairkit.audit(
        sample_model("multiclass", trees=True), sample_data("multiclass", rows=1200), auditors=["all-inputs"]
    )
    flip = next(finding for finding in report.findings if finding.metric == "all_inputs_flip")
    assert flip.value == 1.0
    assert flip.interval == (1.0, 1.0)
