"""Twenty mistakes that people make in their first hour: one message each that fixes it at once."""

from __future__ import annotations

import pickle
import shutil

import pytest
from tests.commands import checked

RULE = "equal_opportunity_difference:sex=0.05"
TABLE = "--data t.parquet --label decision --favorable approved --sensitive sex"

MISTAKES = {
    "audit modle.onnx --data t.parquet": "there is no model file 'modle.onnx'. In that folder there are: model.onnx",
    "audit model.onnx --data tt.parquet": "there is no data file 'tt.parquet'. In that folder there are: t.csv",
    "audit model.onnx --data t.csv --data t.parquet": "--data is there twice, and takes one value: leave one out",
    f"audit model.onnx {TABLE} --max equalized_odds:sex=0.05": "Did you mean 'equalized_odds_difference'?",
    f"audit model.onnx {TABLE} --min demographic_parity:sex=0.8": "Did you mean 'demographic_parity_ratio'?",
    f"audit model.onnx {TABLE} --max equal_oportunity_difference=0.05": "Did you mean 'equal_opportunity_difference'?",
    f"audit model.onnx {TABLE} --max equal_opportunity_difference=5": "5 of 100 people are 0.05",
    f"audit model.onnx {TABLE} --max {RULE.replace('sex', 'gender')}": "The sensitive columns are: sex.",
    "audit model.onnx --data t.parquet --label decison": "no label column 'decison'. Did you mean 'decision'?",
    "audit model.onnx --data t.parquet --label decision --favorable yes": "The values of 'decision' are: approved,",
    "audit . --data t.parquet": "is a folder; give the .onnx file in it",
    "audit model.pkl --data t.parquet": "`fairkit.to_onnx(model, X, 'model.onnx')` writes one",
    "audit t.csv --data t.parquet": "leave --data out and name its columns: fairkit audit t.csv --predictions",
    f"audit model.onnx {TABLE} --plugin fairgbm": "--plugin. It belongs to `fairkit alternatives`",
    f"audit --task ranking --predictions score=income {TABLE}": "name it with --set data.query=COLUMN",
    "data t.parquet": "Name those of groups with --sensitive",
    "compare model.onnx --data t.parquet": "fairkit compare BASE.onnx OTHER.onnx --data TABLE",
    "certify model.onnx --data t.parquet": "`fairkit key new auditor.key` makes one",
    "registry add loans model.onnx": "`fairkit registry add loans@1 --certificate CERT` attaches a certificate",
    "promote loans@1 production": "It is `fairkit registry promote`.",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, loans_model):
    """A model, a table in two forms, a pickle, and a registry that has the model."""
    path = tmp_path_factory.mktemp("mistakes")
    shutil.copy(loans_model.path, path / "model.onnx")
    shutil.copy(loans_model.data, path / "t.parquet")
    (path / "t.csv").write_text("sex,decision\nfemale,approved\nmale,denied\n")
    (path / "model.pkl").write_bytes(pickle.dumps({"coefficients": [1.0]}))
    checked("registry", "add", "loans", path / "model.onnx", "--registry", path / "fairkit-registry")
    return path


@pytest.mark.parametrize("typed", MISTAKES)
def test_one_message_that_fixes_it(typed, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    done = checked(*typed.split(), code=2)
    said = " ".join(done.stderr.split())
    assert MISTAKES[typed] in said
    assert said.count("fairkit: ") + said.count("Error: ") == 1
    assert done.stdout == ""
    assert sorted(folder.rglob("*")) == before


def test_there_are_twenty():
    assert len(MISTAKES) == 20
