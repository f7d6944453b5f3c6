"""What a search is told, and what it must not forget: given models, constant models, looks at test rows."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import fairkit
from fairkit.fitted import FittedModel, Prediction
from fairkit.mitigators import Table
from fairkit.objective import Objective
from fairkit_cli.pages.mitigation import path_told
from fairkit_onnx.write.export import embed_settings
from fairkit_repair.mitigation.learned import below_majority, is_constant, treats_all_alike
from fairkit_repair.repairing.preparing import optimism_of
from fairkit_repair.repairing.run import identity_of, journal_of, record_look

ROWS = 3_000
RULE = fairkit.Rule(metric="demographic_parity_difference", sensitive="sex", max=0.15)


def table(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 6)).astype(np.float32)
    man = rng.random(ROWS) < 0.5
    good = (x[:, 0] + 0.5 * man + rng.normal(size=ROWS) > 0.2).astype(int)
    columns: dict[str, Any] = {f"x{i}": x[:, i] for i in range(6)}
    return columns | {"sex": np.where(man, "m", "f").astype(object), "man": man.astype(np.float32), "y": good}


FEATURES = [*(f"x{i}" for i in range(6)), "man"]


def data(seed: int) -> fairkit.Dataset:
    return fairkit.load_data(table(seed), label="y", favorable=1, sensitive=["sex"], features=FEATURES)


def forest(seed: int, path: Path, **settings: Any) -> Path:
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier

    rows = table(seed)
    x = np.column_stack([rows[name] for name in FEATURES])
    model = RandomForestClassifier(11, random_state=0, **settings).fit(x, rows["y"])
    path.write_bytes(to_onnx(model, x[:1], options={"zipmap": False}, target_opset=17).SerializeToString())
    return path


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_the_cost_is_that_of_the_test_rows(tmp_path: Path) -> None:
    """A forest that knows its training rows by heart: on them a repair costs ten times what it costs others."""
    model = forest(0, tmp_path / "deep.onnx")
    found = fairkit.repair(
        data(0), [RULE], test=data(1), model=model, anyway=True, budget=0.5, threads=1, objective="accuracy"
    )
    search = found.search
    assert search is not None
    before, after = found.before.find("accuracy").value, found.after.find("accuracy").value
    assert before is not None
    assert after is not None
    assert search.optimism is not None
    assert search.optimism > 0.1  # 1.0 on its training rows
    told = path_told(search, found.changes)
    word = "costs" if after <= before else "gains"
    assert f"On the test rows it {word} {abs(before - after):.4f} [" in told[-1]
    assert f"(on {ROWS:,} training rows)" in told[1]
    assert any("It learned from these rows" in note for note in found.notes)
    # the predicted accuracies are about other rows: the given model's own is that of the test rows
    assert search.alternatives[0].accuracy == pytest.approx(before, abs=0.005)
    assert search.choice.accuracy == pytest.approx(after, abs=0.04)


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_learned_from_other_rows_is_measured_as_it_is(tmp_path: Path) -> None:
    from fairkit.data.table import Table
    from fairkit_onnx.file import OnnxModel

    model = OnnxModel.load(forest(7, tmp_path / "shallow.onnx", max_depth=3).read_bytes())
    assert optimism_of(model, Table.from_dataset(data(0)), Table.from_dataset(data(1)), Objective()) == 0.0


# Constant models, and models that are worse than the most frequent outcome.
@pytest.mark.parametrize(
    ("score", "chance", "constant"),
    [
        ([0.1, 0.4], [0.0, 0.0], True),
        ([0.1, 0.4], [0.3, 0.3], True),  # a coin for everybody
        ([0.1, 0.4], [0.0, 1.0], False),
        ([0.1, 0.4], [0.3, 0.4], False),
        ([1.5, 1.5], None, True),
        ([1.5, 1.6], None, False),
        ([[0.6, 0.4], [0.9, 0.1]], None, True),
        ([[0.6, 0.4], [0.4, 0.6]], None, False),
    ],
)
def test_a_constant_prediction_is_seen(score, chance, constant):
    told = None if chance is None else np.array(chance)
    assert is_constant(Prediction(score=np.array(score), decision_probability=told)) is constant


class Rare(FittedModel):
    """Accepts one row in 50,000, which a look at some rows misses."""

    details, notes = {}, ()

    def predict(self, columns):
        return Prediction(score=columns["x"], decision_probability=(columns["x"] == 1).astype(float))

    def to_onnx(self):
        raise NotImplementedError


def report(decided, label):
    columns = {"y": label, "d": decided, "g": np.tile(["a", "b"], len(label) // 2)}
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["g"], predictions={"decision": "d"})
    return fairkit.audit(None, data)


def test_all_rows_are_looked_at_before_a_model_is_called_constant():
    x = np.zeros(50_000)
    table = Table(columns={"x": x}, features=("x",), target=np.tile([0.0, 1.0], 25_000))
    assert treats_all_alike(Rare(), table, None)
    x[30_001] = 1
    assert not treats_all_alike(Rare(), table, None)


def test_worse_than_the_most_frequent_outcome_is_said_where_it_is_significant():
    label = np.tile([0, 0, 0, 1], 250)
    table = Table(columns={}, features=(), target=label.astype(float))
    wrong = np.where(np.arange(1000) % 3 == 0, 1 - label, label)
    assert "below that of deciding alike for all" in below_majority(table, report(wrong, label))[0]
    assert below_majority(table, report(np.zeros(1000, dtype=int), label)) == ()
    assert treats_all_alike(Rare(), table, report(np.zeros(1000, dtype=int), label))


# The count of looks at test rows: no name of the output, no damage, no missing folder sets it back.
TEST, OTHER = (hashlib.sha256(text).hexdigest() for text in (b"rows", b"others"))


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _file(path, **search):
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 15)])
    embed_settings(proto, {"schema": "fairkit.model/1", "mitigation": {"search": search}})
    path.write_bytes(proto.SerializeToString())
    return path


def test_every_other_search_is_a_look_whatever_the_file_is_called():
    assert record_look(TEST, "a", "one.onnx") == (1, None)
    assert record_look(TEST, "b", "two.onnx") == (2, None)
    assert record_look(TEST, "c", None) == (3, None)
    assert record_look(OTHER, "c", None) == (1, None)
    assert record_look(TEST, "b", None) == (2, None)  # the same search again


def test_damage_does_not_fail_open(own_state):
    for one in "abc":
        record_look(TEST, one, None)
    journal = journal_of(TEST)
    journal.write_bytes(b"\xff\xfe\x00garbage\n" + journal.read_bytes()[2:] + b"torn")
    assert record_look(TEST, "d", None).number >= 4
    journal.unlink()
    journal.mkdir()
    found = record_look(TEST, "e", None)
    assert "cannot be read or written" in found.doubt
    broken = own_state / "fair.onnx"
    broken.write_bytes(b"no model")
    assert "cannot be read, so that looks it tells of" in record_look(OTHER, "a", broken).doubt


def test_the_file_tells_of_looks_elsewhere(own_state):
    path = _file(own_state / "fair.onnx", looks=4, test_sha256=TEST, look="a")
    assert record_look(TEST, "b", path) == (5, None)
    assert record_look(TEST, "a", path) == (4, None)
    assert record_look(OTHER, "b", path) == (1, None)
    damaged = _file(own_state / "odd.onnx", looks="many", test_sha256=TEST)
    assert record_look(TEST, "c", damaged).doubt is not None


def test_what_tells_searches_apart():
    search = {"policy": [{"max": 0.1}], "looks": 3, "look": "x", "looks_doubt": None}
    one = identity_of(search, {"method": "m"}, 0, "d")
    assert one == identity_of(search | {"looks": 9, "look": "y"}, {"method": "m"}, 0, "d")
    others = [
        identity_of(search | {"sure": 0.5}, {"method": "m"}, 0, "d"),
        identity_of(search, {"method": "n"}, 0, "d"),
        identity_of(search, {"method": "m"}, 1, "d"),
        identity_of(search, {"method": "m"}, 0, "e"),
        identity_of({"policy": np.float64(1)}, {"method": "m"}, 0, "d"),
    ]
    assert len({one, *others}) == 6
