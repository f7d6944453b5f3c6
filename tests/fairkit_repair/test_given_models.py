"""A model that is given: what a repair of it costs is told from rows that the model did not learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairkit
from fairkit.objective import Objective
from fairkit_cli.pages.mitigation import path_told
from fairkit_repair.repairing.preparing import optimism_of

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
