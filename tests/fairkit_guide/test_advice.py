"""The guide: every situation can be reached and measured, its numbers are right, and nothing is called fair."""

from __future__ import annotations

import itertools
import os
import pty
import re
import select
import sys
import sysconfig
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fairkit
from fairkit.errors import DataError, ParameterError
from fairkit.results.rules import Rule
from fairkit_guide.advice import GroupSize, _target, check_answers, conflicts, limit_choices, situation, too_few, tree

ANSWERS = {one["key"]: list(one["answers"]) for one in tree()["questions"]}


def table(rows=4_000, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], rows)
    good = rng.random(rows) < np.where(sex == "m", 0.6, 0.4)
    return pd.DataFrame({"x": rng.normal(size=rows), "sex": sex, "repaid": np.where(good, "yes", "no")})


def test_every_combination_of_answers_has_a_situation_and_every_situation_is_reached():
    reached = {
        situation(task, dict(zip(ANSWERS, answers, strict=True)))["name"]
        for task in ("binary", "multiclass", "regression", "ranking")
        for answers in itertools.product(*ANSWERS.values())
    }
    assert reached == {one["name"] for one in tree()["situations"]}


def _measured(task):
    rng = np.random.default_rng(1)
    n = 600
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "score": rng.random(n)})
    kwargs = {"sensitive": ["sex"]}
    if task == "binary":
        frame["y"], frame["d"] = rng.integers(0, 2, n), (frame.score > 0.5).astype(int)
        kwargs |= {"label": "y", "favorable": 1, "predictions": {"decision": "d", "score": "score"}}
    elif task == "multiclass":
        frame["y"], frame["c"] = rng.choice(list("abc"), n), rng.choice(list("abc"), n)
        kwargs |= {"label": "y", "predictions": {"class": "c"}}
    elif task == "regression":
        frame["y"], frame["p"] = rng.normal(size=n), rng.normal(size=n)
        kwargs |= {"label": "y", "predictions": {"prediction": "p"}}
    else:
        frame["y"], frame["q"] = rng.integers(0, 3, n), np.arange(n) // 10
        kwargs |= {"label": "y", "query": "q", "predictions": {"score": "score"}}
    report = fairkit.audit(None, fairkit.load_data(frame, **kwargs))
    return {finding.metric for finding in report.findings if finding.sensitive == "sex"}


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "ranking"])
def test_what_the_tree_names_is_measured_by_an_audit(task):
    measured = _measured(task)
    for one in tree()["situations"]:
        if task in one["when"].get("task", ["binary"]):
            named = {entry["metric"] for entry in (*one["metrics"], *one["not"])}
            assert named <= measured | {name + "_difference" for name in measured}, one["name"]


def test_the_advice_has_the_numbers_of_the_table():
    frame = table()
    advice = fairkit.advise(frame, label="repaid", favorable="yes", sensitive="sex", labels="trusted", decides="give")
    assert advice.metrics[0].metric == "equal_opportunity_difference"
    assert advice.metrics[0].rule
    for size in advice.groups:
        inside = frame[frame.sex == size.group]
        assert (size.people, size.favorable) == (len(inside), int((inside.repaid == "yes").sum()))
    assert "use" in advice.defaults
    assert "labels" not in advice.defaults
    shares = frame.repaid.eq("yes").groupby(frame.sex).mean()
    assert f"{shares['f']:.1%} of f and {shares['m']:.1%} of m" in advice.conflicts[0]
    assert not re.search(r"\bfair\b", str(advice))


def test_the_conflict_is_an_identity_of_confusion_tables():
    sizes = [
        GroupSize(sensitive="s", group="a", people=1000, favorable=300, interval=(0.27, 0.33)),
        GroupSize(sensitive="s", group="b", people=1000, favorable=600, interval=(0.57, 0.63)),
    ]
    (text,) = conflicts(sizes)
    rates = [float(number) for number in re.findall(r"would be ([\d.]+) and ([\d.]+\d)", text)[0]]
    for good, rate in zip((300, 600), rates, strict=True):
        found = 0.8 * good  # true positives at a false negative rate of .2
        wrong = found * (1 - 0.8) / 0.8  # false positives at a precision of .8
        assert wrong / (1000 - good) == pytest.approx(rate, abs=0.005)
    same = [sizes[0], GroupSize(sensitive="s", group="b", people=1000, favorable=310, interval=(0.28, 0.34))]
    assert "no conflict is shown" in conflicts(same)[0]


def test_a_limit_that_is_called_passable_is_passed_by_four_of_five_equal_models():
    sizes = [
        GroupSize(sensitive="s", group=g, people=n, favorable=k) for g, n, k in (("a", 3000, 900), ("b", 5000, 2500))
    ]
    metric = "equal_opportunity_difference"
    choices = {choice.limit: choice for choice in limit_choices(metric, "max", sizes, "binary")}
    assert choices[0.1].passable == ("s",)
    assert choices[0.02].passable == ()
    target, rng, n = _target(metric), np.random.default_rng(0), np.array([900.0, 2500.0])
    rule = {limit: Rule(metric, None, max=limit) for limit in choices}
    from fairkit.planning.assumptions import sums_of

    passed = dict.fromkeys(choices, 0)
    for _ in range(300):
        counted = rng.binomial(n.astype(int), 0.5).astype(float)
        estimate = target.rates[0]().estimate(sums_of(target.rates[0], n, n, counted), rng)
        _, high = target.interval([estimate], 0.95)
        for limit in choices:
            passed[limit] += high <= rule[limit].limit
    assert passed[0.1] >= 0.8 * 300
    assert passed[0.02] < 0.5 * 300


def test_groups_with_too_few_people_are_named_with_what_would_do():
    sizes = [
        GroupSize(sensitive="s", group=g, people=n, favorable=n // 2) for g, n in (("a", 20), ("b", 400), ("c", 4000))
    ]
    told = too_few("equal_opportunity_difference", "max", {"s": 0.05}, sizes)
    assert told[0] == "s: a has 20 people, fewer than 30"
    assert "b has 200 people with the favorable outcome; the limit 0.05 takes about" in told[1]
    assert too_few("equal_opportunity_difference", "max", {"s": 0.9}, sizes[1:]) == []


def test_laws_come_first_and_answers_are_checked():
    frame = table()
    advice = fairkit.advise(frame, label="repaid", favorable="yes", sensitive="sex", law="ugesp")
    assert advice.rules == [{"metric": "demographic_parity_ratio", "sensitive": "sex", "min": 0.8}]
    assert "1607.4(D)" in advice.origin
    with pytest.raises(ParameterError, match="give or take"):
        check_answers({"decides": "both"})
    with pytest.raises(ParameterError, match="nyc-ll144"):
        check_answers({"law": "nyc"})
    with pytest.raises(DataError, match="no column is known to hold groups"):
        fairkit.advise(frame[["x", "repaid"]], label="repaid", favorable="yes")
    with pytest.raises(DataError, match="turns every reason round"):
        fairkit.advise(frame.rename(columns={"repaid": "y"}), sensitive="sex")


def test_grades_without_queries_are_no_ranking():
    frame = table(900).assign(grade=np.arange(900) % 5, page=np.arange(900) // 9)
    with pytest.raises(DataError, match="ranked together with `query`"):
        fairkit.advise(frame, label="grade", sensitive="sex", use="rank")
    assert fairkit.advise(frame, label="grade", sensitive="sex", use="rank", query="page").task == "ranking"
    assert fairkit.advise(frame, label="grade", favorable="4", sensitive="sex", use="rank").task == "binary"


def test_without_outcomes_no_error_rate_is_named():
    advice = fairkit.advise(table()[["x", "sex"]], sensitive="sex")
    assert advice.answers["labels"] == "none"
    assert {one.metric for one in advice.metrics} == {"demographic_parity_ratio", "demographic_parity_difference"}


def _terminal(folder, words, answers):
    """Run a command in a terminal of 80 columns, answering each prompt; return what the screen showed and the code."""
    script = Path(sysconfig.get_path("scripts")) / "fairkit"
    child, screen = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(COLUMNS="80", TERM="xterm", NO_COLOR="1")
        os.execv(sys.executable, [sys.executable, str(script), *words])
    shown, asked = b"", 0
    while True:
        ready, _, _ = select.select([screen], [], [], 60)
        try:
            part = os.read(screen, 65_536) if ready else b""
        except OSError:
            break
        if not part:
            break
        shown += part
        while shown.count(b"Number or name") > asked:
            os.write(screen, answers[min(asked, len(answers) - 1)].encode() + b"\n")
            asked += 1
    return shown.decode().replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), asked


def test_six_questions_in_a_terminal_of_80_columns(tmp_path):
    table().to_parquet(tmp_path / "loans.parquet")
    shown, code, asked = _terminal(tmp_path, ["init", "loans.parquet", "--labels", "past"], ["", "x", "1"])
    assert code == 0, shown
    assert asked <= 7  # one answer was none of the choices
    assert "'x' is none of them" in shown
    assert max(map(len, shown.splitlines())) <= 80 or "Number or name" in max(shown.splitlines(), key=len)
    first = (tmp_path / "fairkit.toml").read_text()
    settings = tomllib.loads(first)
    assert settings["policy"] == [{"metric": "demographic_parity_ratio", "sensitive": "sex", "min": 0.8}]
    assert "labels: past" in settings["about"]["guide_answers"]
    again, code, _ = _terminal(tmp_path, ["init", "loans.parquet", "--labels", "past", "--force"], ["", "x", "1"])
    assert code == 0, again
    assert (tmp_path / "fairkit.toml").read_text() == first
