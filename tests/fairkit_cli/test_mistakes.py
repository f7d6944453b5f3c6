"""Mistakes of the first hour, damaged inputs, and hints: each ends as the manual says."""

from __future__ import annotations

import html
import importlib.util
import pickle
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import checked, invoke

import fairkit
from fairkit_datasets.loans import hiring_table

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


# A few of the damaged inputs of ``benchmarks/fuzz_input.py``: each ends with a code that the manual lists.
FILE = Path(__file__).parents[2] / "benchmarks" / "fuzz_input.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz_input", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # the data are nonsense
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("settings", 30),
        ("metadata", 20),
        ("state", 18),
        ("rows", 30),
        ("watch", 24),
        ("certificates", 24),
        ("plans", 30),
    ],
)
def test_damaged_input_is_no_bug(fuzz, monkeypatch, kind, count):
    monkeypatch.setenv("XDG_STATE_HOME", "")  # set by the fuzzer, and put back here
    assert fuzz.run(kind, count) == []


def test_the_fuzzer_can_fail(fuzz, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "")

    def cases(count, rng, folder):
        for _ in range(count):
            yield fuzz.Case("settings", "x", 70, "")

    monkeypatch.setitem(fuzz.KINDS, "settings", cases)
    assert len(fuzz.run("settings", 3)) == 3


# Every hint that a screen or a page gives is run, for every task: none ends in an error.
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
def tables(tmp_path_factory):
    from sklearn.linear_model import LinearRegression, LogisticRegression

    tables = tmp_path_factory.mktemp("hints")
    table, hiring = people(0), hiring_table(400, 1)
    for name, made in {"people": table, "hiring": hiring}.items():
        pq.write_table(made, tables / f"train-{name}.parquet")
    pq.write_table(people(1), tables / "people.parquet")
    pq.write_table(hiring_table(400, 2), tables / "hiring.parquet")
    x, applicants = table.select(["a", "b"]).to_pandas(), hiring.select(["test", "recommendation"]).to_pandas()
    models = {
        "binary": LogisticRegression().fit(x, np.asarray(table["good"])),
        "classes": LogisticRegression().fit(x, np.asarray(table["level"])),
        "regression": LinearRegression().fit(x, np.asarray(table["amount"])),
        "ranker": LinearRegression().fit(applicants, np.asarray(hiring["relevance"])),
    }
    for name, model in models.items():
        (tables / f"{name}.onnx").write_bytes(fairkit.to_onnx(model, applicants if name == "ranker" else x))
    return tables


def said_by(line: str, tables: Path, monkeypatch) -> tuple[str, int]:
    monkeypatch.chdir(tables)
    done = invoke(*shlex.split(line))
    return done.output, done.exit_code


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_hints_lead_on(task, tables, monkeypatch):
    shown, code = said_by(f"audit {TASKS[task]}", tables, monkeypatch)
    assert code == 0, shown
    said = " ".join(shown.split())
    (rule,) = re.findall(r"for example (--m(?:ax|in) \S+)", said)
    strict = f"{rule.partition('=')[0]}={0.03 if 'ranking' in task else 0.1} --format html --output page.html"
    settings = [text for text in re.findall(r"--set [a-z.]+=\S+", said) if "group" in text]
    assert settings == ["--set group.simultaneous=true"]
    for hint in [" ".join([*settings, *re.findall(r"--format json", said)]), rule, strict]:
        shown, code = said_by(f"audit {TASKS[task]} {hint}", tables, monkeypatch)
        assert code in (0, 1, 3), (hint, shown)
    page = (tables / "page.html").read_text("utf-8")
    commands = [html.unescape(re.sub("<[^>]+>", "", one)) for one in re.findall(r"<code>.*?</code>", page)]
    commands = [text for text in commands if text.startswith("fairkit mitigate ")]
    assert len(commands) == (code == 1 and ".onnx" in TASKS[task])
    for command in commands:
        data = "hiring.parquet" if task == "ranking" else "people.parquet"
        columns = "test,recommendation" if task == "ranking" else "a,b"
        typed = command.removeprefix("fairkit ").replace("TRAIN", f"train-{data}").replace("TEST", data)
        shown, code = said_by(f"{typed} --features {columns} --set mitigate.budget=0.1", tables, monkeypatch)
        assert code in (0, 1, 3), (command, shown)


@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "code"),
    [("binary", 0), ("regression", 0), ("a class", 0), ("scores and outcomes", 0), ("scores", 2), ("numbers", 2)],
)
def test_a_gap_is_divided_or_why_not_is_said(task, code, tables, monkeypatch):
    shown, ended = said_by(f"why {TASKS[task]}", tables, monkeypatch)
    assert ended == code, shown
    assert (" minus f (" in shown) if code == 0 else ("there is no gap to divide" in shown)


@pytest.mark.long
def test_a_limit_that_no_method_can_meet_leads_to_none(tables, monkeypatch):
    line = f"audit {TASKS['binary']} --max statistical_parity_ks=0.05 --format html --output page.html"
    assert said_by(line, tables, monkeypatch)[1] == 1
    page = (tables / "page.html").read_text("utf-8")
    assert "fairkit mitigate" not in page
    assert "Other decisions would." in page
