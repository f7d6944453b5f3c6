"""Commands that compare: models, and a file with the model that it came from."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from tests.commands import checked, invoke

import fairkit

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
    return invoke


@pytest.mark.long
def test_each_model_gets_its_own_columns(run):
    own = [f"--features-of={name}.onnx={','.join(c)}" for name, c in (("champion", FIVE), ("challenger", EIGHT))]
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


@pytest.mark.long
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
    result = run("compare", "champion.onnx", *ABOUT, "--against", "rows.parquet", "--features-of=champion.onnx=c0")
    assert result.exit_code == 2
    assert "--features-of is for several models" in " ".join(result.stderr.split())


def test_a_constant_model_is_said_before_the_numbers(run):
    columns = ("--predictions", "decision=y", "--predictions", "decision=one")
    about = (*ABOUT[:2], "--sensitive", "sex")
    result = run("compare", *columns, *about)
    assert result.exit_code == 0, result.output
    said, numbers = " ".join(result.stdout.split()).split("Between groups")
    assert "! columns one: All 900 rows get the favorable decision" in said
    assert "DP difference" in numbers
    page = run("compare", *columns, *about, "--format", "html")
    assert "All 900 rows get the favorable decision" in page.stdout


@pytest.fixture
def two_months(tmp_path, monkeypatch):
    """Two tables with decisions of two models, and a configuration that names the label."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    for name, gap in (("may.parquet", 0.0), ("june.parquet", 0.3)):
        sex = rng.choice(["f", "m"], 1500)
        table = {
            "sex": sex,
            "old": (rng.random(1500) < 0.5).astype(int),
            "new": (rng.random(1500) < 0.4 + gap * (sex == "m")).astype(int),
        }
        if name == "may.parquet":
            table["repaid"] = rng.integers(0, 2, 1500)
        pq.write_table(pa.table(table), name)
    toml = '[data]\nlabel = "repaid"\nfavorable = 1\nsensitive = ["sex"]\n'
    (tmp_path / "fairkit.toml").write_text(toml)


RULE = ["--max", "demographic_parity_difference:sex=0.1"]
PAIR = ["--predictions", "decision=old", "--predictions", "decision=new"]


def _said(*arguments, code=0):
    return checked("compare", *arguments, code=code)


def test_rules_judge_every_model(two_months):
    assert "new: PASS" in _said("--data", "may.parquet", *PAIR, *RULE).stdout.replace("decision=", "")
    result = _said("--data", "june.parquet", *PAIR, *RULE, "--format", "json", code=1)
    record = json.loads(result.stdout)
    assert [rules[0]["verdict"] for rules in record["policy"]] == ["pass", "fail"]
    backwards = [*PAIR[2:], *PAIR[:2]]  # the verdict is on the models beside the first
    _said("--data", "june.parquet", *backwards, *RULE)
    misspelt = _said("--data", "june.parquet", *PAIR, "--max", "demografic_parity_difference=0.1", code=2)
    assert "Did you mean" in misspelt.stderr


def test_a_table_without_the_configured_label(two_months):
    result = _said("--data", "june.parquet", *PAIR)
    assert "june.parquet has no column 'repaid', the configured label" in result.stderr
    assert "There is no label" in " ".join(result.stdout.split())
    assert "no column 'repaid'" not in _said("--data", "may.parquet", *PAIR).stderr
    _said("--data", "june.parquet", *PAIR, "--label", "repaid", code=2)  # typed is meant


def test_two_tables_and_two_reports_are_told_apart(two_months):
    text = _said("--data", "may.parquet", "--against", "june.parquet", *PAIR[2:], *RULE, code=1).stdout
    flat = " ".join(text.split())
    assert "may" in flat.partition("Between groups")[2]
    assert "june" in flat.partition("Between groups")[2]
    assert "may: PASS" in flat.replace(".parquet", "")
    assert "june: FAIL" in flat.replace(".parquet", "")
    for place in ("first.json", "second.json"):
        arguments = ["audit", *PAIR[2:], "--data", "may.parquet", "--format", "json", "--output", place]
        checked(*arguments)
    text = _said("first.json", "second.json").stdout
    assert "first.json" in text
    assert "second.json" in text
    _said("first.json", "second.json", *RULE)


def test_two_files_of_one_name_are_told_apart(two_months, tmp_path):
    from tests.exports import network, people

    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        proto = network()
        proto.producer_name = folder
        (tmp_path / folder / "model.onnx").write_bytes(proto.SerializeToString())
    columns = {name: list(values) for name, values in people().items()}
    pq.write_table(pa.table(columns), "people.parquet")
    data = ["--data", "people.parquet", "--label", "default", "--favorable", "0", "--features", "x0,x1,x2,x3"]
    text = _said("a/model.onnx", "b/model.onnx", *data).stdout
    assert "a/model.onnx" in text
    assert "b/model.onnx" in text


# `fairkit parity`, and the function behind it: does a file decide as the model did?
RNG = np.random.default_rng(8)
X = pd.DataFrame({"a": RNG.normal(size=200), "b": RNG.normal(size=200)})
SCORE = X.a + RNG.normal(size=200)
Y = np.where(SCORE > 0, "paid", "arrears")
MODEL = LogisticRegression().fit(X, Y)
TABLE = X.assign(said=MODEL.predict(X), p=MODEL.predict_proba(X)[:, 1])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fairkit.to_onnx(MODEL, X, "model.onnx")
    TABLE.to_csv("table.csv", index=False)
    return tmp_path


def parity(*arguments):
    return invoke("parity", "model.onnx", "--data", "table.csv", *arguments)


def test_the_same_decisions_end_with_0(folder):
    result = parity("--predictions", "decision=said,score=p")
    assert result.exit_code == 0
    assert "model.onnx says the same as the predictions of all 200 rows; scores differ by up to" in result.stdout
    assert parity("--predictions", "score=p").exit_code == 0


def test_other_decisions_end_with_1_and_the_first_rows(folder):
    proba = MODEL.predict_proba(X)[:, 1]
    differ = np.flatnonzero((proba >= 0.3) & (proba < 0.5))
    result = parity("--predictions", "decision=said,score=p", "--threshold", "0.3")
    assert result.exit_code == 1
    assert f"{len(differ)} of 200 rows" in result.stdout
    assert "look for a threshold" in result.stdout
    assert f"row {differ[0]}: the file says paid, the model not paid" in result.stdout
    record = json.loads(parity("--predictions", "decision=said", "--threshold", "0.3", "--format", "json").stdout)
    assert (record["differ"], record["rows"]) == (len(differ), 200)
    assert [one["row"] for one in record["first"]] == differ[:5].tolist()


def test_no_column_is_asked_for(folder):
    result = parity()
    assert result.exit_code == 2
    assert "--predictions decision=COL" in str(result.exception) + result.output


def test_the_function_says_the_same(folder):
    assert fairkit.parity("model.onnx", MODEL, X)
    turned = fairkit.to_onnx(MODEL, X, favorable="arrears")
    assert fairkit.parity(turned, MODEL, X)
    other = fairkit.parity("model.onnx", MODEL, X, threshold=0.3)
    assert not other
    assert other.first[0].scores[0] == pytest.approx(other.first[0].scores[1], abs=1e-6)


def test_several_classes_numbers_and_arrays(folder):
    three = LogisticRegression().fit(X, np.digitize(SCORE, [-1, 1]))
    assert fairkit.parity(fairkit.to_onnx(three, X), three, X).rows == 200
    numbers = LinearRegression().fit(X, SCORE)
    content = fairkit.to_onnx(numbers, X)
    assert fairkit.parity(content, numbers, X)
    moved = LinearRegression().fit(X, SCORE + (X.a > 1))
    assert fairkit.parity(content, moved, X).differ == 200
    array = LogisticRegression().fit(X.to_numpy(), Y)
    assert fairkit.parity(fairkit.to_onnx(array, X), array, X)
