"""The promise of the first page: LightGBM trained on Adult's train part, its ONNX file audited on the test part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import fairkit

FEATURES = ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]


@pytest.mark.long
def test_numbers_are_fairlearns(public_data: Path, tmp_path: Path) -> None:
    import fairlearn.metrics as flm
    import lightgbm
    import pandas as pd
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType
    from sklearn.metrics import accuracy_score, roc_auc_score

    frame = pd.read_parquet(public_data / "adult.parquet")
    train, test = frame[frame["split"] == "train"], frame[frame["split"] == "test"]
    model = lightgbm.LGBMClassifier(n_estimators=60, n_jobs=1, verbose=-1)
    model.fit(train[FEATURES].to_numpy(np.float32), (train["income"] == ">50K").astype(int))
    proto = convert_lightgbm(
        model, initial_types=[("X", FloatTensorType([None, len(FEATURES)]))], target_opset=15, zipmap=False
    )
    onnx.save(proto, tmp_path / "adult.onnx")
    test.to_csv(tmp_path / "test.csv", index=False)
    data = fairkit.load_data(
        tmp_path / "test.csv", label="income", favorable=">50K", sensitive=["sex", "race"], features=FEATURES
    )
    report = fairkit.audit(tmp_path / "adult.onnx", data)
    assert report.data.rows == 16_281

    score = model.predict_proba(test[FEATURES].to_numpy(np.float32))[:, 1]
    truth, decision = (test["income"] == ">50K").to_numpy(int), (score > 0.5).astype(int)
    for split in ("sex", "race"):
        given = {"y_true": truth, "y_pred": decision, "sensitive_features": test[split]}
        for name in ("demographic_parity", "equalized_odds", "equal_opportunity"):
            for kind in ("difference", "ratio"):
                true = getattr(flm, f"{name}_{kind}")(truth, decision, sensitive_features=test[split])
                assert report.find(f"{name}_{kind}", split).value == pytest.approx(true, abs=1e-12)
        accuracy = flm.MetricFrame(metrics=accuracy_score, **given)
        groups = {group.group: group.value for group in report.find("accuracy_difference", split).groups}
        assert groups == pytest.approx(accuracy.by_group.to_dict(), abs=1e-12)
    assert report.find("roc_auc").value == pytest.approx(roc_auc_score(truth, score), abs=1e-6)
