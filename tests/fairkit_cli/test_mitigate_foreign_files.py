"""`fairkit mitigate --model` takes the options about outputs that `fairkit audit` takes, and reads files as it does."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import checked
from tests.exports import EXPORTS, people

WITH_OPTIONS = [export for export in EXPORTS if export.options]


def _typed(options):
    for name, value in options.items():
        parts = [f"{key}={one}" for key, one in value.items()] if isinstance(value, dict) else value
        text = ",".join(parts) if isinstance(parts, tuple | list) else str(parts)
        yield from ("--threshold", text) if name == "threshold" else ("--set", f"model.{name}={text}")


@pytest.fixture(autouse=True)
def _same_rows(monkeypatch):
    # the rules are measured on the rows they learned from, which a leak check refuses
    monkeypatch.setattr("fairkit_repair.mitigation.learned.check_leak", lambda *_: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("foreign")
    columns = {name: values.tolist() for name, values in people().items()}
    pq.write_table(pa.table(columns), where / "people.parquet")
    return where


@pytest.mark.long
@pytest.mark.parametrize("export", WITH_OPTIONS, ids=lambda export: export.name)
def test_the_same_options_as_audit(export, folder):
    model = folder / "model.onnx"
    model.write_bytes(export.build().SerializeToString())
    data = ["--data", str(folder / "people.parquet"), "--label", export.label]
    data += ["--favorable", str(export.favorable), "--sensitive", "sex", "--features", ",".join(export.features)]
    shown = ["--format", "json", *_typed(export.options)]
    audited = checked("audit", model, *data, *shown)
    method = ["--plugin", "threshold-optimizer", "--set", "constraint=demographic_parity", "--set", "tolerance=0"]
    paths = ["--model", str(model), "--test", str(folder / "people.parquet"), "--output", str(folder / "fair.onnx")]
    repaired = checked("mitigate", *method, *paths, *data, *shown)
    accuracy = (export.decision() == export.truth).mean()
    record = json.loads(repaired.stdout)
    for findings in (json.loads(audited.stdout)["findings"], record["before"]["findings"]):
        said = next(one for one in findings if one["metric"] == "accuracy" and one["sensitive"] is None)
        assert said["value"] == pytest.approx(accuracy, abs=1e-6)
    gap = next(one for one in record["after"]["findings"] if one["metric"] == "demographic_parity_difference")
    assert gap["value"] < 0.002
    assert np.isfinite(accuracy)


def test_an_option_that_means_nothing_is_refused(folder):
    data = ["--data", str(folder / "people.parquet"), "--label", "word", "--favorable", "approved"]
    arguments = [
        "mitigate",
        "--plugin",
        "reweigh",
        *data,
        "--sensitive",
        "sex",
        "--set",
        "model.classes=approved,denied",
    ]
    result = checked(*arguments, "--output", folder / "fair.onnx", code=2)
    assert "classes=('approved', 'denied') means nothing here" in result.stderr
