"""The domain is that of all rows, and before anything is written as proved, rows and random inputs are run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import fairkit
from fairkit_all_inputs import findings, replaying
from fairkit_all_inputs.bounds import problem as kinds
from fairkit_all_inputs.bounds import searching
from fairkit_all_inputs.domains import People

from .test_all_inputs import FLIP, SCORE, again, trusted
from .test_encoders import built, node

SHARE = "all_inputs_flippable"
helper = onnx.helper


def report(path, table, sensitive="sex", **settings):
    data = fairkit.load_data(
        table, label="y", favorable=1, sensitive=[sensitive], features=[c for c in table if c != "y"]
    )
    found = fairkit.audit(
        trusted(path), data, auditors=["all-inputs"], parameters={"all-inputs": {"columns": sensitive, **settings}}
    )
    return {finding.metric: finding for finding in found.findings}


def forest_of(path, table):
    """A tree of many leaves on all columns but y, as a file."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.tree import DecisionTreeClassifier

    columns = [c for c in table if c != "y"]
    model = DecisionTreeClassifier(random_state=0).fit(table[columns].to_numpy(np.float32), table["y"])
    kind = FloatTensorType([None, len(columns)])
    proto = to_onnx(
        model, initial_types=[("x", kind)], target_opset={"": 15, "ai.onnx.ml": 3}, options={"zipmap": False}
    )
    onnx.save(proto, path)
    return path


def rare(rows=3_000):
    """Two one-hot columns of which one row in 3,000 has none, and there alone sex decides."""
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sex": rng.integers(0, 2, rows), "job_a": rng.integers(0, 2, rows)})
    table["job_b"] = 1 - table["job_a"]
    table["y"] = table["job_a"]
    table = pd.concat([table, pd.DataFrame({"sex": [0, 1] * 3, "job_a": 0, "job_b": 0, "y": [0, 1] * 3})])
    return table.sample(frac=1, random_state=1).reset_index(drop=True)


def test_a_one_hot_group_is_one_in_all_rows_not_in_those_looked_at(tmp_path):
    table = rare()
    path = forest_of(tmp_path / "m.onnx", table)
    assert report(path, table, people=5)[FLIP].interval == (1.0, 1.0)


def test_combinations_of_changing_columns_come_from_all_rows(tmp_path):
    table = rare()
    table["group"] = np.where((table["job_a"] == 0) & (table["job_b"] == 0), 2, table["job_a"])
    path = forest_of(tmp_path / "m.onnx", table)
    data = fairkit.load_data(table, label="y", favorable=1, sensitive=["sex"], features=[c for c in table if c != "y"])
    told = {"columns": ["sex", "group"], "people": 5, "one_hot": False}
    found = fairkit.audit(trusted(path), data, auditors=["all-inputs"], parameters={"all-inputs": told})
    assert (
        len(
            People.of(next(iter(data.batches(["sex", "group"]))), ["sex", "group"], 5, 0, ["sex", "group"]).combinations
            or ()
        )
        == 6
    )
    assert found.find(FLIP, "sex+group").interval == (1.0, 1.0)


def test_a_total_of_batches_is_that_of_all_rows():
    table = rare(400)
    data = fairkit.load_data(table, label="y", favorable=1, sensitive=["sex"])
    names = ["sex", "job_a", "job_b"]

    def total(rows):
        parts = [People.of(batch, names, 50, 0, ["sex", "job_a"]) for batch in data.batches(names, rows=rows)]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole + part
        return whole

    one, many = total(1_000), total(7)
    assert one.groups == many.groups == frozenset()
    assert sorted(one.combinations.values()) == sorted(many.combinations.values()) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_rows_outside_the_domain_are_counted_and_named_and_count_for_no_share(tmp_path):
    import pandas as pd

    nodes = [node("Abs", ["x"], ["e"])]
    path = built(tmp_path / "m.onnx", nodes)
    x = np.append(np.full(30, 2.0), [0.25, -0.25, 0.0])
    table = pd.DataFrame({"x": x, "sex": np.arange(len(x)) % 2, "y": np.arange(len(x)) % 2})
    found = report(path, table, domain={"x": "1:3"})
    assert found[FLIP].interval == (0.0, 0.0)
    assert any("3 of 33 rows are outside the domain (x: 3)" in note for note in found[FLIP].notes)
    assert found[SHARE].interval == (0.0, 0.0)
    assert found[SHARE].evidence["people"] == 30


def test_a_wrong_proof_is_an_error_with_the_input_in_it_and_never_a_result(tmp_path, monkeypatch):
    """A search that loses what lies inside, as one that trusts equal ends: the rows say so."""
    import pandas as pd

    path = built(tmp_path / "m.onnx", [node("Abs", ["x"], ["e"])])
    table = pd.DataFrame({"x": np.linspace(-1, 3, 101), "sex": np.arange(101) % 2, "y": np.arange(101) // 2 % 2})
    monkeypatch.setattr("fairkit_onnx.structure.monotone._AROUND_ZERO", frozenset({"Abs"}))
    monkeypatch.setattr("fairkit_onnx.structure.cells._Pieces._split", lambda self, side: None)
    with pytest.raises(replaying.ContradictionError, match=r"x=-?0\.\d"):
        report(path, table)
    outside = table[table["x"].abs() > 0.6]  # no row shows it: the random inputs do
    with pytest.raises(replaying.ContradictionError, match=r"proved"):
        report(path, outside)


def test_a_bound_of_the_score_that_a_row_exceeds_is_an_error(tmp_path, monkeypatch):
    import pandas as pd

    path = built(tmp_path / "m.onnx", [node("Abs", ["x"], ["e"])])
    table = pd.DataFrame({"x": np.linspace(-2, 3, 101), "sex": np.arange(101) % 2, "y": np.arange(101) // 2 % 2})
    true = searching.answer

    def halved(problem, kind, **settings):
        from dataclasses import replace

        got = true(problem, kind, **settings)
        return replace(got, upper=got.upper / 2, lower=0.0, pair=None, point=None) if kind == kinds.SCORE else got

    monkeypatch.setattr(findings, "answer", halved)
    with pytest.raises(replaying.ContradictionError, match=SCORE):
        report(path, table)


def test_a_row_that_flips_is_a_witness_where_the_search_found_none(tmp_path, monkeypatch):
    import pandas as pd

    path = built(tmp_path / "m.onnx", [node("Abs", ["x"], ["e"])])
    table = pd.DataFrame({"x": np.linspace(-2, 3, 101), "sex": np.arange(101) % 2, "y": np.arange(101) // 2 % 2})
    true = searching.answer

    def blind(problem, kind, **settings):
        from dataclasses import replace

        return replace(true(problem, kind, **settings), lower=-np.inf, upper=9.0, pair=None, point=None)

    monkeypatch.setattr(findings, "answer", blind)
    found = report(path, table)
    assert found[FLIP].interval == (1.0, 1.0)
    assert isinstance(found[FLIP].evidence["witness"], list)  # it is somebody's row
    assert found[SHARE].interval[0] > 0
    assert found[SCORE].interval[0] == pytest.approx(4.0)


@pytest.mark.long
def test_a_certificate_of_another_version_is_refused_with_a_sentence(loans, monkeypatch):
    data = fairkit.load_data(str(loans / "loans.csv"), label="decision", favorable="approved", sensitive=["sex"])
    told = {"columns": "ethnicity", "people": 20}
    found = fairkit.audit(
        trusted(loans / "boosted.onnx"), data, auditors=["all-inputs"], parameters={"all-inputs": told}
    )
    old = [f for f in found.findings if f.metric == SCORE]
    assert old[0].evidence["version"] == 3
    from dataclasses import replace

    without = [replace(f, evidence={k: v for k, v in f.evidence.items() if k != "version"}) for f in found.findings]
    with pytest.raises(fairkit.FairkitError, match=r"certify the model anew"):
        again(loans / "boosted.onnx", loans, without, monkeypatch, search=True, **told)
