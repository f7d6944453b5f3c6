"""`fairkit parity`, and the function behind it: does a file decide as the model did?"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from tests.commands import invoke

import fairkit

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


def run(*arguments):
    return invoke("parity", "model.onnx", "--data", "table.csv", *arguments)


def test_the_same_decisions_end_with_0(folder):
    result = run("--predictions", "decision=said,score=p")
    assert result.exit_code == 0
    assert "model.onnx says the same as the predictions of all 200 rows; scores differ by up to" in result.stdout
    assert run("--predictions", "score=p").exit_code == 0


def test_other_decisions_end_with_1_and_the_first_rows(folder):
    proba = MODEL.predict_proba(X)[:, 1]
    differ = np.flatnonzero((proba >= 0.3) & (proba < 0.5))
    result = run("--predictions", "decision=said,score=p", "--threshold", "0.3")
    assert result.exit_code == 1
    assert f"{len(differ)} of 200 rows" in result.stdout
    assert "look for a threshold" in result.stdout
    assert f"row {differ[0]}: the file says paid, the model not paid" in result.stdout
    record = json.loads(run("--predictions", "decision=said", "--threshold", "0.3", "--format", "json").stdout)
    assert (record["differ"], record["rows"]) == (len(differ), 200)
    assert [one["row"] for one in record["first"]] == differ[:5].tolist()


def test_no_column_is_asked_for(folder):
    result = run()
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
