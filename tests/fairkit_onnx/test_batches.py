"""Batches for scoring: the same outputs whatever their size, and a size that follows what a model costs."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit_onnx import file as batches
from fairkit_onnx.file import BUDGET, FIRST, MOST, Batches


def scored(rows, cost, monkeypatch, times=1):
    """Score numbered rows with a model that costs so many MiB a row; return the sizes asked."""
    peak = [100.0]
    sizes = []

    def run(feeds):
        sizes.append(len(feeds["x"]))
        peak[0] = max(peak[0], 100.0 + cost * len(feeds["x"]))
        return [feeds["x"] * 2]

    monkeypatch.setattr(batches, "peak_memory", lambda: peak[0])
    pace = Batches()
    for _ in range(times):
        x = np.arange(rows)
        parts = pace.each({"x": x}, run)
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), x * 2)
    return sizes, peak[0] - 100.0, pace


def test_a_cheap_model_soon_gets_large_batches(monkeypatch):
    sizes, _, pace = scored(400_000, 0.0, monkeypatch)
    assert sizes[:3] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert max(sizes[:-1]) == pace.rows == MOST
    assert len(sizes) < 16


@pytest.mark.parametrize("cost", [0.01, 0.05, 0.2])
def test_a_costly_model_stays_below_twice_the_budget(cost, monkeypatch):
    sizes, grown, pace = scored(200_000, cost, monkeypatch)
    assert grown < 2 * BUDGET
    assert sizes[-2] == pace.rows
    assert BUDGET / 4 < pace.rows * cost < 2 * BUDGET


def test_the_size_is_kept_for_the_next_rows(monkeypatch):
    sizes, _, pace = scored(100_000, 0.05, monkeypatch, times=2)
    assert set(sizes[-10:-1]) == {pace.rows}
    assert sizes.count(FIRST) == 1


def test_no_batch_of_a_few_rows_at_the_end(monkeypatch):
    sizes, _, _ = scored(FIRST + 3, 0.0, monkeypatch)
    assert sizes == [FIRST + 3]


@pytest.mark.long
def test_nearest_neighbours_score_in_little_memory():
    """As much as the model holds for 50,000 rows at once would be 400 MB; it is scored in a fraction."""
    import resource

    from skl2onnx import to_onnx
    from sklearn.neighbors import KNeighborsClassifier

    from fairkit_onnx.file import OnnxModel

    rng = np.random.default_rng(0)
    inside = rng.normal(size=(2_000, 4)).astype(np.float32)
    fitted = KNeighborsClassifier(3).fit(inside, inside[:, 0] > 0)
    model = OnnxModel.load(to_onnx(fitted, inside[:1], options={"zipmap": False}))
    rows = rng.normal(size=(30_000, 4)).astype(np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scores = model.run({model.inputs[0].name: rows})["probabilities"]
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 3 * BUDGET
    np.testing.assert_allclose(scores[-50:], fitted.predict_proba(rows[-50:]), atol=1e-6)
