"""`fairkit compare`: a champion and a challenger with features of their own, and what is said before the numbers."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from fairkit_cli.main import app

FIVE, EIGHT = ([f"c{i}" for i in range(n)] for n in (5, 8))
ABOUT = ("--data", "rows.parquet", "--label", "y", "--favorable", "1", "--sensitive", "sex")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command in a folder with a champion of five columns and a challenger of eight."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    to_onnx = pytest.importorskip("skl2onnx").to_onnx
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(900, 8)).round(3)
    y = (rng.random(900) < 1 / (1 + np.exp(-rows[:, :6].sum(1)))).astype(int)
    table = {f"c{i}": rows[:, i] for i in range(8)}
    table |= {"sex": rng.choice(["f", "m"], 900), "y": y, "one": np.ones(900, int)}
    pq.write_table(pa.table(table), "rows.parquet")
    for name, columns in (("champion", FIVE), ("challenger", EIGHT)):
        model = linear_model.LogisticRegression().fit(rows[:, : len(columns)], y)
        made = to_onnx(model, rows[:1, : len(columns)].astype(np.float32), options={"zipmap": False})
        (tmp_path / f"{name}.onnx").write_bytes(made.SerializeToString())
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


def test_each_model_gets_its_own_columns(run):
    own = [
        f"--features-of={name}.onnx={','.join(c)}" for name, c in (("champion", FIVE), ("challenger", EIGHT))
    ]
    result = run("compare", "champion.onnx", "challenger.onnx", *ABOUT, *own, "--format", "json")
    assert result.exit_code == 0, result.output
    changes = json.loads(result.stdout)["changes"][0]
    for name, columns, place in (("champion", FIVE, "before"), ("challenger", EIGHT, "after")):
        alone = run("audit", f"{name}.onnx", *ABOUT, "--features", ",".join(columns), "--format", "json")
        found = {(f["metric"], f["sensitive"]): f["value"] for f in json.loads(alone.stdout)["findings"]}
        for metric, sensitive in (("roc_auc", None), ("demographic_parity_difference", "sex")):
            change = next(c for c in changes if c["metric"] == metric and c["sensitive"] == sensitive)
            assert change[place] == pytest.approx(found[metric, sensitive], abs=1e-9)
    mixed = run("compare", "champion.onnx", "challenger.onnx", *ABOUT, own[0], "--features", ",".join(EIGHT),
                "--format", "json")  # fmt: skip
    assert json.loads(mixed.stdout)["changes"][0] == changes


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (["other.onnx=c0"], "names none of the models champion.onnx, challenger.onnx"),
        (["champion.onnx=c0,nobody"], "no feature column 'nobody'"),
        (["champion.onnx="], "at least one"),
        (["champion.onnx=c0", "champion.onnx=c1"], "once"),
        (["champion.onnx=c0,c1"], "takes 5 columns but gets 2"),
    ],
)
def test_columns_that_cannot_be_meant(run, own, words):
    texts = [f"--features-of={text}" for text in own]
    result = run("compare", "champion.onnx", "challenger.onnx", *ABOUT, *texts, "--features", ",".join(EIGHT))
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


def test_with_another_table_there_is_one_model(run):
    result = run(
        "compare", "champion.onnx", *ABOUT, "--against", "rows.parquet", "--features-of=champion.onnx=c0"
    )
    assert result.exit_code == 2
    assert "--features-of is for several models" in " ".join(result.stderr.split())


def test_a_constant_model_is_said_before_the_numbers(run):
    columns = ("--predictions", "decision=y", "--predictions", "decision=one")
    about = (*ABOUT[:2], "--sensitive", "sex")
    result = run("compare", *columns, *about)
    assert result.exit_code == 0, result.output
    said, numbers = " ".join(result.stdout.split()).split("Between groups")
    assert "! columns one: All 900 rows get the favorable decision" in said
    assert "demographic_parity_difference" in numbers
    page = run("compare", *columns, *about, "--format", "html")
    assert "All 900 rows get the favorable decision" in page.stdout
