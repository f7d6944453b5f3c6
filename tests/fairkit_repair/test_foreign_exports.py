"""Every foreign file of the shared list can be repaired: the rule is put on the scores as the audit reads them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.exports import EXPORTS, Export, people

import fairkit


@pytest.fixture(autouse=True)
def seen(monkeypatch):
    """Let the rows that a rule was learned from be the rows that it is measured on."""
    monkeypatch.setattr("fairkit_repair.mitigation.learned.check_leak", lambda *_: None)


@pytest.mark.long
@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.name)
def test_a_rule_on_the_scores_of_the_model_in_memory(export: Export) -> None:
    proto = export.build()
    result = fairkit.mitigate(
        "threshold-optimizer",
        export.data(),
        test=export.data(),
        model=proto.SerializeToString(),
        options=fairkit.ModelOptions(**export.options),
        constraint="demographic_parity",
        tolerance=0.0,
        threads=1,
    )
    before = result.before.find("accuracy").value
    assert before == pytest.approx((export.decision() == export.truth).mean(), abs=1e-6)
    assert result.after.find("demographic_parity_difference", "sex").value == pytest.approx(0.0, abs=2e-3)
    after = result.after.find("accuracy").value
    assert after is not None
    assert after > max(export.truth.mean(), 1 - export.truth.mean()) - 0.02  # the scores still tell something
    score = export.score()
    if score is not None:  # the rule's score is the model's own, of the favorable label
        from fairkit_onnx.file import OnnxModel

        written = OnnxModel.load(result.onnx)
        columns = {name: people()[name] for name in people() if name in {i.name for i in written.inputs}}
        assert set(columns) | {"x", "features", "X", "gender", "u"} >= {i.name for i in written.inputs}
        area = result.after.find("roc_auc").value
        from sklearn.metrics import roc_auc_score

        assert area == pytest.approx(roc_auc_score(export.truth, score), abs=1e-6)
    assert np.isfinite(result.before.find("accuracy").value)
