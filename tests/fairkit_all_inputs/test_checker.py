"""The checker of the docs reads the model itself and believes no file that was changed, emptied or cut."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import fairkit

from .conftest import ROLES
from .test_all_inputs import CHANCE, FLIP, SCORE, handmade, trusted
from .test_encoders import built, node
from .test_odd_models import NAMES, newer, people

DOCS = Path(__file__).resolve().parents[2] / "docs/explanation"


@pytest.fixture(scope="module")
def checker():
    sys.path.insert(0, str(DOCS))
    import all_inputs_check

    yield all_inputs_check
    sys.path.remove(str(DOCS))


def reported(model, data, file, **settings):
    """Audit, and write the report as `fairkit audit --format json` does."""
    told = {"save_proof": str(file), **settings}
    report = fairkit.audit(trusted(model), data, auditors=["all-inputs"], parameters={"all-inputs": told})
    path = file.with_suffix(".report")
    path.write_text(json.dumps(report.to_dict()))
    return report, path


@pytest.fixture(scope="module")
def sure(loans, proofs):
    """A model of two ensembles that never flips: the model, its proof and the report."""
    folder = proofs / "sure_trees"
    files = folder / "sure.onnx", folder / "proof.json", folder / "proof.report"
    if not files[2].exists():
        folder.mkdir()
        data = fairkit.load_data(str(loans / "loans.csv"), **ROLES)
        reported(handmade(files[0]), data, files[1], columns="sex")
    return files


@pytest.mark.long
def test_a_proof_a_model_and_a_report_hold_together_without_fairkit(loans, sure, tmp_path):
    data = fairkit.load_data(str(loans / "loans.csv"), **ROLES)
    _, path = reported(loans / "boosted.onnx", data, tmp_path / "p.json", columns="ethnicity", people=20)
    boosted = (tmp_path / "p.json", loans / "boosted.onnx", path)
    for files, questions in (((sure[1], sure[0], sure[2]), 3), (boosted, 2)):
        result = subprocess.run(
            [sys.executable, str(DOCS / "all_inputs_check.py"), *map(str, files)],
            capture_output=True, text=True, check=False, cwd=tmp_path,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )  # fmt: skip
        assert (result.returncode, result.stdout.count("holds")) == (0, questions), result.stdout + result.stderr


def claims(told, **changes):
    for finding in told["findings"]:
        for name, change in changes.items():
            if finding["metric"] == name:
                change(finding)


def narrower(finding):
    finding["interval"][1] *= 0.9
    finding["evidence"]["proved"] *= 0.9


FORGED = {
    "the threshold": lambda p, r: p.update(threshold=float.hex(-90.0)),
    "no threshold": lambda p, r: p.update(threshold=None),
    "the constant": lambda p, r: p.update(base=float.hex(9.0)),
    "the rounding": lambda p, r: p.update(rounding=float.hex(0.0)),
    "the direction": lambda p, r: p.update(direction=-1),
    "a number that is none": lambda p, r: p.update(threshold="nan"),
    "a tree left out": lambda p, r: p["trees"].pop(),
    "a tree twice": lambda p, r: p["trees"].append(p["trees"][0]),
    "a value that changes left out": lambda p, r: (p["domain"][-1]["members"].pop(), p["domain"][-1]["choices"].pop()),
    "the domain": lambda p, r: p["domain"][0]["ends"].pop(),
    "what an encoder makes": lambda p, r: p["features"]["0"].__setitem__(1, p["features"]["0"][2]),
    "the changing block": lambda p, r: p.update(changing=0),
    "no logs": lambda p, r: p.update(logs={}),
    "a log left out": lambda p, r: p["logs"].pop(FLIP),
    "a pair left out": lambda p, r: p["logs"][SCORE].pop("0,1"),
    "a pair emptied": lambda p, r: p["logs"][SCORE].update({"0,1": []}),
    "a box left open": lambda p, r: p["logs"][FLIP].update({"0,1": [[0, 1], 0]}),
    "a log that goes on": lambda p, r: p["logs"][FLIP].update({"0,1": [0, 0]}),
    "a split of nothing": lambda p, r: p["logs"][FLIP].update({"0,1": [[-1, 1], 0, 0]}),
    "a search cut short": lambda p, r: p["logs"][FLIP].update({"0,1": [0], "1,0": [0]}),
    "a tree added twice": lambda p, r: p["logs"][SCORE].update({"0,1": [{"gap": [[0, 0]]}, 0]}),
    "the digest": lambda p, r: p.update(problem_sha256="0" * 64),
    "both digests": lambda p, r: (
        p.update(problem_sha256="0" * 64),
        claims(r, **dict.fromkeys((FLIP, SCORE, CHANCE), lambda f: f["evidence"].update(problem_sha256="0" * 64))),
    ),
    "another model": lambda p, r: p.update(model_sha256="0" * 64),
    "the report's model": lambda p, r: r["model"].update(sha256="0" * 64),
    "a smaller claim": lambda p, r: claims(r, **{SCORE: narrower}),
    "a smaller chance": lambda p, r: claims(r, **{CHANCE: narrower}),
    "an endless claim": lambda p, r: claims(r, **{SCORE: lambda f: f["interval"].__setitem__(1, 1e999)}),
    "a digest that is not there": lambda p, r: claims(r, **{FLIP: lambda f: f["evidence"].pop("problem_sha256")}),
    "inputs near people": lambda p, r: claims(r, **{FLIP: lambda f: f["parameters"].update(near=0.1)}),
    "no findings": lambda p, r: r.update(findings=[]),
    "a field that is not there": lambda p, r: p.pop("inputs"),
    "a field besides": lambda p, r: p.update(note="all of it"),
    "a field of a block besides": lambda p, r: p["domain"][0].update(points=True),
    "a column in another place": lambda p, r: p["inputs"][0][2].reverse() or p["inputs"].reverse(),
    "a column of another name": lambda p, r: p["inputs"][0][2].__setitem__(0, "nobody"),
    "whole numbers only": lambda p, r: next(b for b in p["domain"] if "ends" in b).update(whole=True),
    "numbers of float64": lambda p, r: next(b for b in p["domain"] if "ends" in b).update(single=False),
    "another value of a cell": lambda p, r: p["domain"][-1]["choices"].reverse(),
    "a negative block": lambda p, r: p.update(changing=-1),
    "a negative cell": lambda p, r: p["domain"][-1]["members"][0].__setitem__(1, -1),
    "a block of no cells": lambda p, r: next(b for b in p["domain"] if "ends" in b).update(ends=[]),
    "a feature of no block": lambda p, r: p["features"]["0"].__setitem__(0, -2),
    "a feature besides": lambda p, r: p["features"].update({"99": [-1, ["0x0p+0"], ["0x0p+0"]]}),
    "a negative rounding": lambda p, r: p.update(rounding=float.hex(-1.0)),
    "a log of another question": lambda p, r: p["logs"].update(more={"0,1": [0]}),
    "a sum of another name": lambda p, r: p["logs"][SCORE].update({"0,1": [{"all": []}, 0]}),
    "a bound of minus infinity": lambda p, r: claims(r, **{SCORE: lambda f: f["evidence"].update(proved=-1e999)}),
    "evidence besides": lambda p, r: claims(r, **{SCORE: lambda f: f["evidence"].update(more=1)}),
    "another domain": lambda p, r: claims(r, **{SCORE: lambda f: f["evidence"]["domain"].popitem()}),
    "an older proof": lambda p, r: claims(r, **{SCORE: lambda f: f["evidence"].update(version=2)}),
    "an old file": lambda p, r: p.update(schema="fairkit.all-inputs/1"),
    "an empty file": lambda p, r: p.clear(),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_what_was_changed_removed_or_emptied_is_refused(sure, tmp_path, checker, capsys, name):
    model, proof, report = sure
    told, claimed = (json.loads(path.read_text()) for path in (proof, report))
    before = copy.deepcopy((told, claimed))
    FORGED[name](told, claimed)
    assert (told, claimed) != before
    (tmp_path / "p.json").write_text(json.dumps(told))
    (tmp_path / "r.json").write_text(json.dumps(claimed))
    assert checker.main(tmp_path / "p.json", model, tmp_path / "r.json") == 1
    said = capsys.readouterr().out
    assert ("REFUSED" in said) != ("REFUTED" in said)
    assert "damaged" not in said or name in {"an empty file", "a value that changes left out"}


def changed_leaf(proto):
    leaf = next(a for a in proto.graph.node[2].attribute if a.name == "target_weights")
    leaf.floats[0] += 1.0


@pytest.mark.parametrize("how", ["a leaf", "an encoder"])
def test_a_changed_model_is_refused_although_its_digest_was_written_everywhere(sure, tmp_path, checker, capsys, how):
    """A leaf is in the digest; an encoder is not, and is run."""
    import hashlib

    proto = onnx.load(sure[0])
    if how == "a leaf":
        changed_leaf(proto)
    else:
        codes = next(a for a in proto.graph.node[0].attribute if a.name == "values_floats")
        codes.floats[1] = 0.2
    model = tmp_path / "m.onnx"
    onnx.save(proto, model)
    told, claimed = (json.loads(path.read_text()) for path in sure[1:])
    told["model_sha256"] = claimed["model"]["sha256"] = hashlib.sha256(model.read_bytes()).hexdigest()
    (tmp_path / "p.json").write_text(json.dumps(told))
    (tmp_path / "r.json").write_text(json.dumps(claimed))
    assert checker.main(tmp_path / "p.json", model, tmp_path / "r.json") == 1
    said = capsys.readouterr().out
    assert ("digest" if how == "a leaf" else "encoders make") in said


def test_names_that_stand_twice_and_infinite_numbers_are_refused(sure, tmp_path, checker, capsys):
    text = sure[1].read_text()
    for wrong, why in ((text[:-2] + ',"logs":{}}', "twice"), (text[:-2] + ',"more":Infinity}', "finite")):
        (tmp_path / "p.json").write_text(wrong)
        assert checker.main(tmp_path / "p.json", sure[0], sure[2]) == 1
        assert why in capsys.readouterr().out


def test_a_certificate_is_read_as_well_as_a_report(sure, tmp_path, checker, capsys):
    import base64

    claimed = json.loads(sure[2].read_text())
    statement = {"subject": [{"digest": {"sha256": claimed["model"]["sha256"]}}], "predicate": claimed}
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    (tmp_path / "c.json").write_text(json.dumps({"payload": payload, "signatures": []}))
    assert checker.main(sure[1], sure[0], tmp_path / "c.json") == 0
    assert capsys.readouterr().out.count("holds") == 3


def test_pieces_of_a_column_are_checked_too(tmp_path, checker, capsys):
    """A sentinel inside the range is a cell of its own, and the encoder is run there."""
    import numpy as np
    import pandas as pd

    imputer = node("Imputer", ["x"], ["e"], imputed_value_floats=[50.0], replaced_value_float=-1.0)
    model = built(tmp_path / "m.onnx", [imputer], threshold=60.0, mode="BRANCH_GT")
    table = pd.DataFrame({"x": np.linspace(-2, 3, 101), "sex": np.arange(101) % 2, "y": np.arange(101) // 2 % 2})
    data = fairkit.load_data(table, label="y", favorable=1, sensitive=["sex"], features=["x", "sex"])
    found, report = reported(model, data, tmp_path / "p.json", columns="sex")
    assert found.find(FLIP, "sex").interval == (0.0, 0.0)
    assert checker.main(tmp_path / "p.json", model, report) == 0
    assert capsys.readouterr().out.count("holds") == 3
    told = json.loads((tmp_path / "p.json").read_text())
    block = told["domain"][0]
    assert len(block["ends"]) > 2
    features = told["features"]["0"]
    for some in (block["ends"], features[2]):  # the sentinel's cell is joined to the one after it
        del some[1]
    del features[1][2]
    (tmp_path / "q.json").write_text(json.dumps(told))
    assert checker.main(tmp_path / "q.json", model, report) == 1
    capsys.readouterr()


def rounds_of_opset_five(folder, **told):
    """Trees of ai.onnx.ml 5, and their proof and report."""
    import numpy as np
    import pandas as pd

    kind = onnx.TensorProto.DOUBLE if told.get("double") else onnx.TensorProto.FLOAT
    helper = onnx.helper
    made = helper.make_graph([newer(11, **told)], "g", [helper.make_tensor_value_info("x", kind, [None, 3])],
                             [helper.make_tensor_value_info("y", kind, [None, 1])])  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    model = folder / "five.onnx"
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=9), model)
    rows = pd.DataFrame(people()[0].astype(int), columns=NAMES).assign(y=np.linspace(-1, 1, 240))
    data = fairkit.load_data(rows, label="y", sensitive=["sex"], features=NAMES)
    _, report = reported(model, data, folder / "five.json", columns="sex")
    return model, folder / "five.json", report


@pytest.mark.parametrize(
    "told",
    [{}, {"modes": [0, 6], "most": 60}, {"double": True, "most": 45}, {"modes": range(6), "aggregate_function": 0}],
)
def test_trees_of_opset_five_are_read_by_the_checker_too(tmp_path, checker, capsys, told):
    model, proof, report = rounds_of_opset_five(tmp_path, **told)
    assert checker.main(proof, model, report) == 0
    assert "holds" in capsys.readouterr().out


FIVE = {
    "a leaf": ("leaf_weights", lambda values: values.__setitem__(0, values[0] + 1.0)),
    "a threshold": ("nodes_splits", lambda values: values.__setitem__(slice(None), [v + 1.0 for v in values])),
    "a set": ("membership_values", lambda values: values.__setitem__(0, 29.0)),
    "a test": ("nodes_modes", lambda values: values.__setitem__(slice(None), [0 if v == 3 else v for v in values])),
}


@pytest.mark.parametrize("name", [*FIVE, "a tree", "a branch", "a missing value"])
def test_changed_trees_of_opset_five_are_refused_although_the_digest_was_written_everywhere(
    tmp_path, checker, capsys, name
):
    import hashlib

    model, proof, report = rounds_of_opset_five(tmp_path)
    before = model.read_bytes()
    proto = onnx.load(model)
    own = {entry.name: entry for entry in proto.graph.node[0].attribute}
    if name in FIVE:
        tensor = own[FIVE[name][0]].t
        values = onnx.numpy_helper.to_array(tensor).tolist()
        FIVE[name][1](values)
        tensor.CopyFrom(onnx.helper.make_tensor("", tensor.data_type, list(tensor.dims), values))
    elif name == "a tree":
        own["tree_roots"].ints.pop()
    elif name == "a branch":
        yes, no = own["nodes_truenodeids"].ints, own["nodes_falsenodeids"].ints
        root = own["tree_roots"].ints[0]
        yes[root], no[root] = no[root], yes[root]
    else:
        some = own["nodes_missing_value_tracks_true"].ints
        some[:] = [1 - one for one in some]
    onnx.save(proto, model)
    told, claimed = (json.loads(path.read_text()) for path in (proof, report))
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    assert model.read_bytes() != before
    told["model_sha256"] = claimed["model"]["sha256"] = digest
    proof.write_text(json.dumps(told))
    report.write_text(json.dumps(claimed))
    same = name == "a missing value"  # no value of this domain is missing: nothing is claimed of them
    assert checker.main(proof, model, report) == (0 if same else 1)
    assert ("holds" if same else "REFUSED") in capsys.readouterr().out
