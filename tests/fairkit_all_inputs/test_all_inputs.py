"""The auditor on real files: witnesses in plain onnxruntime, proofs in certificates, bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.commands import checked

import fairkit
from fairkit.errors import DataError, ModelError, ParameterError
from fairkit.results.findings import Finding
from fairkit.results.policy import judge
from fairkit.results.rules import Rule
from fairkit_all_inputs.bounds.proof import packed
from fairkit_onnx.file import OnnxModel
from fairkit_registry.evidence.predicate import public_findings
from fairkit_registry.evidence.recompute import compare_reports

from .conftest import NUMBERS, ROLES, TEXTS, convert, frame

FLIP, SCORE, CHANCE = "all_inputs_flip", "all_inputs_score_change", "all_inputs_probability_change"


def trusted(path):
    """The file without a process of its own, which takes time; the command's test has one."""
    return OnnxModel.load(str(path), sandbox=False)


def audit(model, folder, columns="sex", **settings):
    told = {"columns": columns, **settings}
    data = fairkit.load_data(str(folder / "loans.csv"), **ROLES)
    report = fairkit.audit(trusted(model), data, auditors=["all-inputs"], parameters={"all-inputs": told})
    return {finding.metric: finding for finding in report.findings}


def plain_scores(path, rows):
    """The probability of approval by onnxruntime alone."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {c: np.array([[row[c]] for row in rows], dtype=object) for c in TEXTS if c in rows[0]}
    feeds |= {c: np.array([[row[c]] for row in rows], dtype=np.float32) for c in NUMBERS if c in rows[0]}
    label, scores = session.run(None, feeds)
    if isinstance(scores, list):
        return label, np.array([row["approved"] for row in scores])
    return label, scores[:, 0]


def sides(finding):
    witness = finding.evidence["witness"]
    witness = witness[0] if isinstance(witness, list) else witness
    return tuple(
        {k.split(".", 1)[1]: v for k, v in witness.items() if k.startswith(f"{side}.")} for side in ("first", "second")
    )


@pytest.mark.long
@pytest.mark.parametrize("name", ["boosted", "forest"])
def test_a_witness_flips_in_plain_onnxruntime_and_only_the_column_changes(loans, name):
    found = audit(loans / f"{name}.onnx", loans, "ethnicity")
    flip = found[FLIP]
    assert (flip.value, flip.interval, flip.evidence["decided"]) == (1.0, (1.0, 1.0), True)
    first, second = sides(flip)
    assert {c for c in first if first[c] != second[c]} == {"ethnicity"}
    labels, _ = plain_scores(loans / f"{name}.onnx", [first, second])
    assert labels[0] == "approved" != labels[1]
    rows = frame()[list(first)].to_dict("records")
    assert first not in rows
    assert second not in rows


@pytest.mark.long
@pytest.mark.parametrize("name", ["boosted", "forest"])
def test_no_sampled_input_changes_more_than_the_bound_and_the_witness_reaches_it(loans, name):
    found = audit(loans / f"{name}.onnx", loans, "ethnicity")
    one = found[CHANCE if name == "boosted" else SCORE]
    low, high = one.interval
    assert high - low < 1e-4
    assert one.evidence["decided"]
    first, second = sides(one)
    _, scores = plain_scores(loans / f"{name}.onnx", [first, second])
    assert scores[0] - scores[1] == pytest.approx(low, abs=1e-5)
    rng = np.random.default_rng(0)
    table = frame()
    rows = [
        {
            c: rng.choice(table[c]) if c in TEXTS else float(rng.uniform(table[c].min(), table[c].max()))
            for c in TEXTS + NUMBERS
        }
        for _ in range(2_000)
    ]
    values = sorted(set(table["ethnicity"]))
    all_scores = np.array(
        [plain_scores(loans / f"{name}.onnx", [{**row, "ethnicity": v} for row in rows])[1] for v in values]
    )
    assert np.ptp(all_scores, axis=0).max() <= high


@pytest.mark.long
def test_the_rounding_of_a_large_forest_is_no_probability(loans, tmp_path):
    """400 trees: a sum of shares may be 1 + 3e-5, and its complement below zero."""
    from sklearn.ensemble import RandomForestClassifier

    path = convert(RandomForestClassifier(400, max_depth=2, random_state=0), tmp_path / "m.onnx")
    assert audit(path, loans, boxes=5, people=5)[FLIP].value in (0.0, 1.0)


def test_a_column_that_the_model_does_not_read_is_proved_at_once(loans, tmp_path):
    from sklearn.ensemble import RandomForestClassifier

    path = convert(RandomForestClassifier(3, max_depth=3, random_state=0), tmp_path / "m.onnx", drop=["sex"])
    found = audit(path, loans)
    assert found[FLIP].interval == found[SCORE].interval == (0.0, 0.0)
    assert found[FLIP].evidence["boxes"] == 0
    assert "does not read sex" in found[FLIP].notes[0]


def again(model, folder, findings, monkeypatch, *, search=False, options=None, **settings):
    """Audit as `verify --recompute` does, with what a certificate holds; a search is an error unless allowed."""
    import fairkit_all_inputs.findings as module

    def refuse(*args, **kwargs):
        raise AssertionError("it searched again")

    public = [
        Finding.from_dict(one) for one in json.loads(json.dumps(public_findings([f.to_dict() for f in findings])))
    ]
    data = fairkit.load_data(str(folder / "loans.csv"), **ROLES)
    with monkeypatch.context() as patch:
        if not search:
            patch.setattr(module, "answer", refuse)
        return fairkit.audit(
            trusted(model),
            data,
            auditors=["all-inputs"],
            parameters={"all-inputs": settings},
            signed=SimpleNamespace(findings=public, environment={}),
            options=options,
        ), public


@pytest.mark.long
def test_a_certificate_is_checked_without_a_search_and_a_changed_bound_is_noticed(loans, monkeypatch):
    data = fairkit.load_data(str(loans / "loans.csv"), **ROLES)
    told = {"columns": "ethnicity", "people": 20, "domain": {"region": "north"}}
    model = loans / "boosted.onnx"
    report = fairkit.audit(trusted(model), data, auditors=["all-inputs"], parameters={"all-inputs": told})
    checked, public = again(model, loans, report.findings, monkeypatch, **told)
    assert list(compare_reports(report, checked)) == []
    for place, finding in enumerate(public):
        if finding.metric != SCORE:
            continue
        for change in (
            {"proved": finding.evidence["proved"] - 0.01},
            {"problem_sha256": "0" * 64},
            {"proof": packed({"0,1": [0]})},
        ):
            forged = replace(
                finding, evidence={**finding.evidence, **change}, interval=(0.0, finding.interval[1] - 0.01)
            )
            signed = replace(report, findings=(*public[:place], forged, *public[place + 1 :]))
            found, _ = again(model, loans, signed.findings, monkeypatch, search=True, **told)
            assert list(compare_reports(signed, found))


def handmade(path, sure=4.0, effect=0.5):
    """Two ensembles: the sex moves the sum only where debts are low, and there it is far above the threshold."""
    helper = onnx.helper

    def ensemble(name, features, values, yes, no, leaves):
        size = len(features)
        return helper.make_node(
            "TreeEnsembleRegressor", ["matrix"], [name], domain="ai.onnx.ml", n_targets=1,
            nodes_treeids=[0] * size, nodes_nodeids=list(range(size)), nodes_featureids=features, nodes_values=values,
            nodes_modes=["LEAF" if y < 0 else "BRANCH_LEQ" for y in yes], nodes_truenodeids=[max(y, 0) for y in yes],
            nodes_falsenodeids=[max(n, 0) for n in no], target_treeids=[0] * len(leaves), target_nodeids=list(leaves),
            target_ids=[0] * len(leaves), target_weights=list(leaves.values()),
        )  # fmt: skip

    nodes = [
        helper.make_node("LabelEncoder", ["sex"], ["code"], domain="ai.onnx.ml", keys_strings=["female", "male"],
                         values_floats=[0.0, 1.0], default_float=-1.0),
        helper.make_node("Concat", ["debt_ratio", "code", "age"], ["matrix"], axis=1),
        ensemble("one", [0, 1, 0, 0, 0], [0.3, 0.5, 0, 0, 0], [1, 3, -1, -1, -1], [2, 4, -1, -1, -1],
                 {2: -sure, 3: sure, 4: sure + effect}),
        ensemble("two", [2, 0, 0], [40.0, 0, 0], [1, -1, -1], [2, -1, -1], {1: -1.0, 2: 1.0}),
        helper.make_node("Sum", ["one", "two"], ["sum"]),
        helper.make_node("Sigmoid", ["sum"], ["score"]),
    ]  # fmt: skip
    types = {"sex": onnx.TensorProto.STRING, "debt_ratio": onnx.TensorProto.FLOAT, "age": onnx.TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(name, kind, [None, 1]) for name, kind in types.items()]
    output = helper.make_tensor_value_info("score", onnx.TensorProto.FLOAT, [None, 1])
    graph = helper.make_graph(nodes, "handmade", inputs, [output])
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_a_model_without_a_flip_is_proved_so_and_a_policy_passes(loans, tmp_path, monkeypatch):
    data = fairkit.load_data(str(loans / "loans.csv"), **ROLES)
    told = {"columns": "sex"}
    model = handmade(tmp_path / "sure.onnx")
    report = fairkit.audit(
        trusted(model),
        data,
        auditors=["all-inputs"],
        parameters={"all-inputs": told},
        policy=[Rule(metric=FLIP, max=0.0)],
    )
    flip, score, chance, share = report.findings
    assert (flip.interval, share.interval, report.verdict) == ((0.0, 0.0), (0.0, 0.0), "pass")
    assert "witness" not in flip.evidence
    assert score.interval == pytest.approx((0.5, 0.5), abs=1e-4)
    assert chance.interval[0] == pytest.approx(1 / (1 + np.exp(-3.5)) - 1 / (1 + np.exp(-3.0)), abs=1e-5)
    checked, _ = again(model, loans, report.findings, monkeypatch, **told)
    assert checked.findings[0].interval == (0.0, 0.0)
    assert list(compare_reports(report, replace(checked, policy=report.policy, verdict=report.verdict))) == []


def test_the_same_model_flips_where_it_is_less_sure(loans, tmp_path):
    """With .8 - 1 <= -.2 <= threshold 0 <= .3: a flip needs age up to 40 and low debts."""
    flip = audit(handmade(tmp_path / "unsure.onnx", sure=0.8), loans)[FLIP]
    first, second = sides(flip)
    assert flip.value == 1.0
    assert (first["sex"], second["sex"]) == ("male", "female")
    assert first["debt_ratio"] <= 0.3
    assert first["age"] <= 40


@pytest.mark.long
def test_a_linear_model_has_a_closed_form(loans, monkeypatch):
    """The largest change of the logit is the difference of two coefficients."""
    model = loans / "linear.onnx"
    found = audit(model, loans, "ethnicity")
    (node,) = [node for node in onnx.load(model).graph.node if node.op_type == "LinearClassifier"]
    told = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    rows = np.array(told["coefficients"], dtype=np.float32).astype(float).reshape(2, -1)
    names = [f"{c}={v}" for c in TEXTS for v in sorted(set(frame()[c]))]
    mine = [rows[0][place] for place, name in enumerate(names) if name.startswith("ethnicity=")]
    low, high = found[SCORE].interval
    assert low == pytest.approx(max(mine) - min(mine), abs=1e-9)
    assert high - low < 1e-4
    first, second = sides(found[FLIP])
    labels, _ = plain_scores(model, [first, second])
    assert labels[0] == "approved" != labels[1]
    assert found[CHANCE].interval[1] <= np.tanh(high / 4) + 1e-5, "at most that of the steepest place"
    checked, _ = again(model, loans, list(found.values()), monkeypatch, columns="ethnicity")
    assert [f.interval for f in checked.findings[:2]] == [found[FLIP].interval, found[SCORE].interval]
    with pytest.raises(ParameterError, match="has no parameter 'near'"):
        audit(model, loans, "ethnicity", near=0.1)


@pytest.mark.long
def test_an_undecided_question_is_inconclusive(loans):
    found = audit(loans / "forest.onnx", loans, ["sex", "ethnicity", "region"], boxes=1)
    score = found[SCORE]
    low, high = score.interval
    assert low < high
    assert "Not decided with 1 boxes" in score.notes[-1]
    (result,), verdict = judge([Rule(metric=SCORE, max=(low + high) / 2)], [score])
    assert (result.verdict, verdict) == ("inconclusive", "inconclusive")


@pytest.mark.long
def test_two_columns_change_together(loans):
    alone, joint = (
        audit(loans / "forest.onnx", loans, c, people=20)[SCORE] for c in ("ethnicity", ["sex", "ethnicity"])
    )
    assert joint.sensitive == "sex+ethnicity"
    assert joint.interval[1] >= alone.interval[0] - 1e-6
    values = sorted(set(frame()["ethnicity"]))[:2]
    told = [f"female+{values[0]}", f"male+{values[1]}"]
    some = audit(loans / "forest.onnx", loans, ["sex", "ethnicity"], values=told, people=20)[SCORE]
    assert some.interval[1] <= joint.interval[1] + 1e-6
    first, second = sides(some)
    assert {first["sex"], second["sex"]} == {"female", "male"}


@pytest.mark.long
def test_people_count_by_weight(loans, tmp_path):
    """Every row twice, or with the weight two: the same share; weights on those who flip move it to one."""
    table = frame(200)
    model = loans / "forest.onnx"
    found = []
    for weights in (None, np.ones(200), np.r_[np.full(100, 1.0), np.full(100, 9.0)]):
        some = table if weights is None else table.assign(weight=weights)
        roles = ROLES if weights is None else {**ROLES, "weights": "weight"}
        data = fairkit.load_data(some, **roles)
        report = fairkit.audit(
            trusted(model), data, auditors=["all-inputs"],
            parameters={"all-inputs": {"columns": "ethnicity", "boxes": 1}},
        )  # fmt: skip
        found.append(report.findings[-1])
    plain, same, heavy = found
    assert plain.interval == pytest.approx(same.interval, abs=1e-12)
    rows = [plain_scores(model, table[TEXTS + NUMBERS].assign(ethnicity=v).to_dict("records"))[0]
            for v in sorted(set(table["ethnicity"]))]  # fmt: skip
    flips = (np.array(rows) != rows[0]).any(axis=0)
    assert plain.value == pytest.approx(flips.mean())
    assert heavy.value == pytest.approx((flips[:100].sum() + 9 * flips[100:].sum()) / 1000)
    assert heavy.evidence["flippable"] == flips.sum()
    assert any("by weight" in note for note in heavy.notes)


@pytest.mark.long
def test_a_domain_that_is_given_holds(loans):
    found = audit(loans / "boosted.onnx", loans, "ethnicity", domain={"age": "30:31", "region": "north"}, people=20)
    first, _ = sides(found[SCORE])
    assert 30 <= first["age"] <= 31
    assert first["region"] == "north"


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"columns": "sax"}, ParameterError, "no column 'sax'.*sex"),
        ({"domain": {"aeg": "1:2"}}, ParameterError, "reads no column 'aeg'.*age"),
        ({"domain": {"sex": "male"}}, ParameterError, "'sex' changes"),
        ({"domain": {"age": "9:1"}}, DataError, "domain of 'age' is empty"),
        ({"domain": {"age": "1:inf"}}, DataError, "finite ends"),
        ({"domain": {"age": "young"}}, ParameterError, "LOW:HIGH"),
        ({"domain": {"region": "moon"}}, ParameterError, "never has the value 'moon'"),
        ({"columns": "income"}, DataError, "more than 64 values"),
        ({"values": "male+x,female+y"}, ParameterError, "2, and 1 columns change"),
    ],
)
def test_bad_input_is_one_message(loans, settings, error, message):
    with pytest.raises(error, match=message):
        audit(loans / "boosted.onnx", loans, **{"columns": "sex", **settings})


def test_a_graph_that_is_not_understood_names_the_node(loans, tmp_path):
    proto = onnx.load(loans / "boosted.onnx")
    for node in proto.graph.node:
        if node.op_type == "Concat":
            before = node.output[0]
            node.output[0] = "before_mixing"
            mixing = onnx.helper.make_node("Softmax", ["before_mixing"], [before], name="mixing")
            place = list(proto.graph.node).index(node)
            proto.graph.node.insert(place + 1, mixing)
            break
    onnx.save(proto, tmp_path / "odd.onnx")
    with pytest.raises(ModelError, match="Softmax 'mixing'"):
        audit(tmp_path / "odd.onnx", loans)


@pytest.mark.long
def test_the_command_shows_both_sides_and_fails_a_policy(loans, tmp_path):
    common = [str(loans / "forest.onnx"), "--data", str(loans / "loans.csv"), "--label", "decision"]
    common += ["--favorable", "approved", "--sensitive", "ethnicity", "--auditor", "all-inputs"]
    common += ["--set", "all-inputs.people=50", "--set", f"all-inputs.save_proof={tmp_path / 'proof.json'}"]
    result = checked("audit", *common, "--max", f"{FLIP}=0", code=1)
    assert "An input whose answer changes" in result.output
    assert "the model's decision" in result.output
    assert "changes" in result.output


def test_one_hot_columns_of_the_table_go_together(tmp_path):
    """A matrix of columns that were encoded before: no witness has two regions, or none."""
    import pandas as pd
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.ensemble import RandomForestClassifier

    table = frame()
    wide = pd.get_dummies(table[["sex", "region"]], dtype=int)
    wide["age"] = table["age"].astype(int)
    label = (table["decision"] == "approved").astype(int)
    names = list(wide)
    model = RandomForestClassifier(8, max_depth=5, random_state=1).fit(wide.to_numpy(np.float32), label)
    proto = to_onnx(
        model,
        initial_types=[("x", FloatTensorType([None, len(names)]))],
        target_opset={"": 15, "ai.onnx.ml": 3},
        options={id(model): {"zipmap": False}},
    )
    wide.assign(y=label).to_csv(tmp_path / "wide.csv", index=False)
    sexes = [name for name in names if name.startswith("sex_")]
    data = fairkit.load_data(str(tmp_path / "wide.csv"), label="y", favorable=1, sensitive=[sexes[0]], features=names)
    report = fairkit.audit(
        proto.SerializeToString(), data, auditors=["all-inputs"], parameters={"all-inputs": {"columns": sexes}}
    )
    score = next(finding for finding in report.findings if finding.metric == SCORE)
    assert any("exactly one is 1" in note for note in score.notes)
    for row in sides(score):
        assert sum(row[name] for name in names if name.startswith("region_")) == 1
        assert sum(row[name] for name in sexes) == 1
    regions = [name for name in names if name.startswith("region_")]
    best = 0.0
    for region in regions:
        for age in range(wide["age"].min(), wide["age"].max() + 1):
            pair = np.array([[float(n in (region, sex)) if n != "age" else age for n in names] for sex in sexes])
            best = max(best, float(np.ptp(model.predict_proba(pair.astype(np.float32))[:, 1])))
    assert score.interval == pytest.approx((best, best), abs=1e-5)


@pytest.mark.parametrize(("scale", "message"), [(1.0, None), (2.0, "add up to 2")])
def test_two_columns_of_weights_are_shares_or_refused(scale, message):
    from fairkit_onnx.structure.ensemble import read_ensemble

    node = onnx.helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", classlabels_int64s=[0, 1],
        nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[0.5, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        class_treeids=[0, 0, 0, 0], class_nodeids=[1, 1, 2, 2], class_ids=[0, 1, 0, 1],
        class_weights=[scale * 0.25, scale * 0.75, scale, 0.0], post_transform="NONE",
    )  # fmt: skip
    if message is None:
        found = read_ensemble(node)
        assert found.value.tolist() == [0.0, 0.75, 0.0]
        assert found.uneven == 0.0
        return
    with pytest.raises(ModelError, match=message):
        read_ensemble(node)


@pytest.mark.long
def test_a_model_that_fairkit_trained_and_exported_is_read(loans, tmp_path):
    """Its file says a decision probability, which is 0 or 1 where nothing is drawn; a file that draws is refused."""
    data = fairkit.load_data(str(loans / "loans.csv"), **ROLES)
    fairkit.mitigate("reweigh", data).save(tmp_path / "ours.onnx")
    found = audit(tmp_path / "ours.onnx", loans, boxes=50, people=20)
    first, second = sides(found[SCORE])
    assert first["sex"] != second["sex"]
    assert found[FLIP].interval in ((0.0, 0.0), (1.0, 1.0))
    assert found[SCORE].interval[0] > 0
    drawing = onnx.load(tmp_path / "ours.onnx")
    drawing.graph.input.append(onnx.helper.make_tensor_value_info("u", onnx.TensorProto.FLOAT, [None, 1]))
    onnx.save(drawing, tmp_path / "draws.onnx")
    with pytest.raises(ParameterError, match="draws its decisions"):
        audit(tmp_path / "draws.onnx", loans)


@pytest.mark.long
def test_seconds_bound_the_audit_where_the_search_is_not_compiled_yet(loans, tmp_path):
    """With an empty cache numba would compile for longer than that: what needs no search is reported, and holds."""
    script = tmp_path / "audit.py"
    script.write_text(f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from types import SimpleNamespace
from tests.fairkit_all_inputs.test_all_inputs import audit
began = time.monotonic()
found = audit(Path({str(loans)!r}) / "boosted.onnx", Path({str(loans)!r}), seconds=0.5)
used = time.monotonic() - began
import json
from fairkit_all_inputs.bounds import loops
notes = {{name: one.notes for name, one in found.items()}}
print(json.dumps([used, {{name: one.interval for name, one in found.items()}}, notes, len(loops.search.signatures)]))
""")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "empty")}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
    _, intervals, notes, compiled = json.loads(done.stdout)
    assert compiled == 0  # nothing was compiled in the audit's own process
    whole = {name: one.interval for name, one in audit(loans / "boosted.onnx", loans).items()}
    for name, (low, high) in intervals.items():
        assert low <= whole[name][1] + 1e-9
        assert high >= whole[name][0] - 1e-9
    assert intervals[FLIP] == [0.0, 1.0] or whole[FLIP] == (1.0, 1.0)
    assert intervals[SCORE][0] > 0  # a row of the table is a witness without any search
    assert intervals[SCORE][1] > 1.5 * whole[SCORE][1]
    assert any("not compiled" in note for note in notes[SCORE])
    assert any("not compiled" in note for note in notes[FLIP]) == (intervals[FLIP] != [1.0, 1.0])
