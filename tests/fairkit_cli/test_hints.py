"""Every hint that a screen or a page gives is run, for every task: none ends in an error."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import invoke

import fairkit
from fairkit_datasets.loans import hiring_table

pytestmark = pytest.mark.long

PEOPLE, SEX = "--data people.parquet", "--sensitive sex"
TASKS = {
    "binary": f"binary.onnx {PEOPLE} --label good --favorable yes {SEX}",
    "regression": f"regression.onnx {PEOPLE} --label amount {SEX}",
    "classes": f"classes.onnx {PEOPLE} --label level {SEX}",
    "a class": f"classes.onnx {PEOPLE} --label level --favorable high {SEX}",
    "decisions": f"--predictions decision=chosen {PEOPLE} {SEX}",
    "scores": f"--predictions score=score {PEOPLE} {SEX}",
    "scores and outcomes": f"--predictions score=score {PEOPLE} --label good --favorable yes {SEX}",
    "numbers": f"--predictions prediction=score {PEOPLE} {SEX}",
    "ranking": f"ranker.onnx --data hiring.parquet --label relevance {SEX} --set data.query=opening",
    "ranking of a column": f"--predictions prediction=score --data hiring.parquet {SEX} --set data.query=opening",
}


def people(seed: int, rows: int = 5_000) -> pa.Table:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], rows)
    a, b = rng.normal(size=rows) + 0.6 * (sex == "m"), rng.normal(size=rows)
    amount = a + 0.5 * b + 0.5 * rng.normal(size=rows)
    return pa.table(
        {
            "sex": sex, "a": a, "b": b, "amount": amount,
            "level": np.array(["low", "middle", "high"])[np.digitize(amount, [-0.3, 0.9])],
            "good": np.where(amount > 0, "yes", "no"), "score": 1 / (1 + np.exp(-amount)),
            "chosen": (a > 0).astype(int),
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from sklearn.linear_model import LinearRegression, LogisticRegression

    folder = tmp_path_factory.mktemp("hints")
    table, hiring = people(0), hiring_table(400, 1)
    for name, made in {"people": table, "hiring": hiring}.items():
        pq.write_table(made, folder / f"train-{name}.parquet")
    pq.write_table(people(1), folder / "people.parquet")
    pq.write_table(hiring_table(400, 2), folder / "hiring.parquet")
    x, applicants = table.select(["a", "b"]).to_pandas(), hiring.select(["test", "recommendation"]).to_pandas()
    models = {
        "binary": LogisticRegression().fit(x, np.asarray(table["good"])),
        "classes": LogisticRegression().fit(x, np.asarray(table["level"])),
        "regression": LinearRegression().fit(x, np.asarray(table["amount"])),
        "ranker": LinearRegression().fit(applicants, np.asarray(hiring["relevance"])),
    }
    for name, model in models.items():
        (folder / f"{name}.onnx").write_bytes(fairkit.to_onnx(model, applicants if name == "ranker" else x))
    return folder


def said_by(line: str, folder: Path, monkeypatch) -> tuple[str, int]:
    monkeypatch.chdir(folder)
    done = invoke(*shlex.split(line))
    return done.output, done.exit_code


@pytest.mark.parametrize("task", TASKS)
def test_hints_lead_on(task, folder, monkeypatch):
    shown, code = said_by(f"audit {TASKS[task]}", folder, monkeypatch)
    assert code == 0, shown
    said = " ".join(shown.split())
    (rule,) = re.findall(r"for example (--m(?:ax|in) \S+)", said)
    strict = f"{rule.partition('=')[0]}={0.03 if 'ranking' in task else 0.1} --format html --output page.html"
    settings = [text for text in re.findall(r"--set [a-z.]+=\S+", said) if "group" in text]
    assert settings == ["--set group.simultaneous=true"]
    for hint in [" ".join([*settings, *re.findall(r"--format json", said)]), rule, strict]:
        shown, code = said_by(f"audit {TASKS[task]} {hint}", folder, monkeypatch)
        assert code in (0, 1, 3), (hint, shown)
    page = (folder / "page.html").read_text("utf-8")
    commands = [html.unescape(re.sub("<[^>]+>", "", one)) for one in re.findall(r"<code>.*?</code>", page)]
    commands = [text for text in commands if text.startswith("fairkit mitigate ")]
    assert len(commands) == (code == 1 and ".onnx" in TASKS[task])
    for command in commands:
        data = "hiring.parquet" if task == "ranking" else "people.parquet"
        columns = "test,recommendation" if task == "ranking" else "a,b"
        typed = command.removeprefix("fairkit ").replace("TRAIN", f"train-{data}").replace("TEST", data)
        shown, code = said_by(f"{typed} --features {columns} --set mitigate.budget=0.1", folder, monkeypatch)
        assert code in (0, 1, 3), (command, shown)


@pytest.mark.parametrize(
    ("task", "code"),
    [("binary", 0), ("regression", 0), ("a class", 0), ("scores and outcomes", 0), ("scores", 2), ("numbers", 2)],
)
def test_a_gap_is_divided_or_why_not_is_said(task, code, folder, monkeypatch):
    shown, ended = said_by(f"why {TASKS[task]}", folder, monkeypatch)
    assert ended == code, shown
    assert (" minus f (" in shown) if code == 0 else ("there is no gap to divide" in shown)


def test_a_limit_that_no_method_can_meet_leads_to_none(folder, monkeypatch):
    line = f"audit {TASKS['binary']} --max statistical_parity_ks=0.05 --format html --output page.html"
    assert said_by(line, folder, monkeypatch)[1] == 1
    page = (folder / "page.html").read_text("utf-8")
    assert "fairkit mitigate" not in page
    assert "Other decisions would." in page
