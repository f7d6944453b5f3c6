"""Every foreign file of the shared list: decisions and scores are those of the model in memory."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, roc_auc_score
from tests.exports import EXPORTS, NUMBERS, Export, network, people

import fairkit


@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.name)
def test_the_numbers_are_those_of_the_model_in_memory(export: Export) -> None:
    report = fairkit.audit(export.build(), export.data(), options=fairkit.ModelOptions(**export.options))
    truth, decision, score = export.truth, export.decision(), export.score()
    assert report.find("accuracy").value == pytest.approx(accuracy_score(truth, decision), abs=1e-6)
    rate = {group.group: group.value for group in report.find("demographic_parity_difference", "sex").groups}
    for name, value in rate.items():
        assert value == pytest.approx(decision[people()["sex"] == name].mean(), abs=1e-6)
    if score is not None:
        assert report.find("roc_auc").value == pytest.approx(roc_auc_score(truth, score), abs=1e-6)
        assert not any("wrong way round" in text for text in report.warnings)


def test_numbers_0_and_1_that_are_no_class_are_a_question() -> None:
    """`approve` is 1 for the good, `default` is 1 for the bad, and both are numbers: nobody but the user knows."""
    for kind in ("int64", "float"):
        with pytest.raises(
            fairkit.ModelError, match=r"'approve' is 0 less often.*`favorable_class`: 1 if it is 1"
        ):
            fairkit.audit(network(kind), EXPORTS[0].data())


def test_a_score_that_ranks_the_wrong_way_round_is_told_before_the_numbers() -> None:
    data = fairkit.load_data(
        people(), label="default", favorable=0, sensitive=["sex"], features=list(NUMBERS)
    )
    options = fairkit.ModelOptions(favorable_class=1)
    report = fairkit.audit(network(), data, options=options)
    area = report.find("roc_auc").value
    assert area is not None
    assert area < 0.3
    assert any(
        text.startswith(f"The scores rank the wrong way round: ROC-AUC {area:.3f}")
        for text in report.warnings
    )
    rng = np.random.default_rng(0)
    noise = people() | {
        "score": rng.random(len(people()["sex"])),
        "said": rng.integers(0, 2, len(people()["sex"])),
    }
    data = fairkit.load_data(noise, label="default", favorable=0, sensitive=["sex"])
    report = fairkit.audit(fairkit.PredictedColumns(score="score"), data)
    assert not any("wrong way" in text for text in report.warnings)
