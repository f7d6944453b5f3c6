"""A search from files to a certificate: what it finds, that it goes on after a kill, and how cheats fail."""

import copy
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from tests.commands import checked, invoke

import fairkit
from fairkit.data.table import Table
from fairkit.errors import DataError, ParameterError
from fairkit.fitted import Run
from fairkit_alternatives.laws import Law, read_laws
from fairkit_alternatives.record import Alternatives
from fairkit_alternatives.search import recheck
from fairkit_alternatives.statements import PairedCounts, losses, reductions
from fairkit_onnx.file import OnnxModel
from fairkit_onnx.write.export import export_bytes
from fairkit_repair.learners import fit_learner

ROLES = {"label": "repaid", "favorable": "yes", "sensitive": ["sex"]}
LAW = Law.from_dict("blind", {"learner": "logistic", "without": ["sensitive"], "bootstrap": True, "draws": 12,
                              "settings": {"C": {"low": 0.01, "high": 10.0, "log": True}}})  # fmt: skip


def people(rows, seed):
    """Outcomes depend on income alone; `shoe` tells the sex, and past approvals were by sex."""
    rng = np.random.default_rng(seed)
    sex = rng.random(rows) < 0.5
    income = rng.normal(0, 1, rows)
    shoe = rng.normal(0, 1, rows) + 2.5 * sex
    chance = 1 / (1 + np.exp(-2.0 * income))
    repaid = rng.random(rows) < chance
    return pd.DataFrame({
        "sex": np.where(sex, "man", "woman"), "income": income.round(4), "shoe": shoe.round(4),
        "repaid": np.where(repaid, "yes", "no"),
    })  # fmt: skip


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    """Files of a model that decides by sex too, with rows to learn from and to test on."""
    folder = tmp_path_factory.mktemp("bank")
    train, test = people(6000, 1), people(6000, 2)
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    past = train.assign(repaid=np.where(train.income + 0.8 * (train.sex == "man") > 0.4, "yes", "no"))
    past.to_csv(folder / "past.csv", index=False)
    table = Table.from_dataset(fairkit.load_data(folder / "past.csv", **ROLES), "binary")
    (folder / "model.onnx").write_bytes(export_bytes(fit_learner("logistic", table, Run()), table))
    return folder


@pytest.fixture(scope="module")
def data(bank):
    return [fairkit.load_data(bank / f"{name}.csv", **ROLES) for name in ("train", "test")]


@pytest.fixture(scope="module")
def search(bank, data):
    return fairkit.alternatives(bank / "model.onnx", data[0], test=data[1], laws=[LAW], loss=0.02, jobs=1)


def test_a_less_discriminatory_model_is_found_and_its_file_keeps_what_is_said(search, bank, data):
    seen = search.columns["sex"].found
    assert search.verdict == "fail"
    assert seen.counts
    assert seen.at_least > 0.1
    assert seen.at_most <= 0.02
    base, after = (
        fairkit.audit(model, data[1]).find("demographic_parity_difference").value
        for model in (str(bank / "model.onnx"), OnnxModel(search.model, "found"))
    )
    assert base - after == pytest.approx(_all_rows(search), abs=1e-9)
    assert base - after == pytest.approx(seen.reduction, abs=0.03)
    assert "sex" not in {one.name for one in OnnxModel(search.model, "found").inputs}
    assert search.columns["sex"].none.at_most >= seen.reduction
    assert search.columns["sex"].none.base == pytest.approx(base, abs=0.03)


def _all_rows(search):
    """The reduction of the pick on selection and test rows together, which are the rows of the file."""
    counts = search.test.take([search.pick])
    chosen = search.selection.take([search.pick])
    both = PairedCounts(counts.base + chosen.base, counts.lost + chosen.lost, counts.gained + chosen.gained)
    return reductions(both, search.aim)[0]


def test_approvals_are_kept_on_the_selection_rows(search):
    base = search.selection.base[..., 1].sum()
    moved = (search.selection.gained - search.selection.lost).sum(axis=(1, 2))
    assert np.abs(moved / search.selection.base.sum()).max() < 0.002
    assert base > 0


@pytest.mark.long
def test_the_same_search_gives_the_same_evidence(search, bank, data):
    again = fairkit.alternatives(bank / "model.onnx", data[0], test=data[1], laws=[LAW], loss=0.02, jobs=2)
    assert json.dumps(again.to_dict()) == json.dumps(search.to_dict())
    assert again.model == search.model


def test_a_second_party_computes_every_statement_from_the_json(search):
    record = json.loads(json.dumps(search.to_dict()))
    again = Alternatives.from_dict(record)
    assert again.statements() == search.statements()
    assert len(json.dumps(record)) < 12_000


def forged(record, change):
    record = copy.deepcopy(record)
    change(record)
    return record


def _hide(record):  # the best draw is called a failed one, and N keeps
    record["failed"]["blind"] = [0]


def _drop(record):
    for part in ("selection", "test"):
        del record[part]["counts"][3]


def _fewer(record):
    record["laws"][0]["draws"] = 11
    _drop(record)


def _another_pick(record):
    record["statements"]["columns"]["sex"]["found"]["place"] += 1


def _lower(record):
    record["statements"]["columns"]["sex"]["none"]["at_most"] = 0.001


def _accept(record):
    record["about"]["loss"] = 0.5


def _beyond(record):
    record["test"]["counts"][0][0] = 10**6


def _share(record):
    record["statements"]["columns"]["sex"]["one_more"][0]["share"] = 0.01


def _twice(record):
    record["others"] = [{"name": "blind 1", "reads_group": False}]
    for part in ("selection", "test"):
        record[part]["counts"].append(record[part]["counts"][1])


def _law(record):
    record["laws"][0]["draws"] = None


def _disagree(record):
    record["disagreement"]["blind"]["accepted"][0][0] += 1


def _columns(record):
    record["about"]["groups"][1] = record["about"]["groups"][0]


def _told(record):
    record["statements"]["told"][0] = "model: nothing to see"


@pytest.mark.parametrize("change", [_hide, _drop, _fewer, _another_pick, _lower, _accept, _beyond, _share, _twice, _law,
                                    _disagree, _columns, _told])  # fmt: skip
def test_changed_evidence_is_refused(search, change):
    with pytest.raises(DataError):
        Alternatives.from_dict(forged(search.to_dict(), change))


def test_n_is_declared_another_n_is_another_law():
    """Who declares N after the search has not its draws."""
    seeds = [Law(name="x", draws=draws).draw("0" * 64, 0).seed for draws in (48, 245)]
    assert seeds[0] != seeds[1]
    assert Law(name="x", draws=48).draw("1" * 64, 0).seed != seeds[0]


@pytest.mark.long
def test_draws_made_up_are_seen_when_some_are_trained_again(search, bank, data):
    rows = {"test": data[1], "share": 1.0}
    assert recheck(search, bank / "model.onnx", data[0], **rows) == 12
    record = search.to_dict()
    for part in ("selection", "test"):  # a cheat writes counts that show nothing, with what follows from them
        record[part]["counts"] = [[0] * 8 for _ in record[part]["counts"]]
    empty = Alternatives.from_dict(record | {"statements": _statements(record)})
    with pytest.raises(DataError, match="12 of 12 draws"):
        recheck(empty, bank / "model.onnx", data[0], **rows)
    with pytest.raises(DataError, match="another lot: model"):
        recheck(search, OnnxModel(search.model, "found"), data[0], **rows)


def _statements(record):
    groups = len(record["about"]["groups"])
    draws = len(record["test"]["counts"])
    rows = np.array(record["test"]["base"]).sum(axis=(1, 2))
    accepts = np.array(record["test"]["base"])[..., 1].sum(axis=1)
    accepted = np.zeros((groups, draws + 1), int)
    accepted[:, 0], accepted[:, -1] = rows - accepts, accepts
    record["disagreement"] = {
        "blind": {"accepted": accepted.tolist(), "apart": np.zeros((draws, groups), int).tolist()}
    }
    return Alternatives._read(record).statements()


@pytest.mark.long
def test_a_good_draw_that_is_called_a_failed_one_is_seen(search, bank, data):
    """It would count as a hit, and be missing where none has much less and where one is found."""
    record = search.to_dict()
    record["failed"]["blind"] = [0]
    for part in ("selection", "test"):
        record[part]["counts"] = [[0] * 8] * 11
    hidden = Alternatives.from_dict(record | {"statements": _statements(record)})
    assert "1 failed, taken for better ones" in dict(hidden.told())["tried"]
    with pytest.raises(DataError, match="12 of 12 draws that were trained again decide otherwise: blind 0,"):
        recheck(hidden, bank / "model.onnx", data[0], test=data[1], share=1.0)


def test_few_draws_or_a_law_that_hardly_varies_pass_no_rule(search):
    """Whoever must pass declares one draw, or seeds alone: nothing is found, and nothing was looked for."""
    record = search.to_dict()
    record["about"] |= {"loss": 0.0, "share": 0.5}
    draws = len(record["test"]["counts"])
    for part in ("selection", "test"):  # all draws are the model in use
        record[part]["counts"] = [[0] * 8] * draws
    alike = Alternatives.from_dict(record | {"statements": _statements(record)})
    assert alike.columns["sex"].none.at_most < 0.03
    assert alike.columns["sex"].weak == "no law varies by the reduction that counts"
    assert alike.verdict == "inconclusive"
    record["about"]["share"] = 0.02
    few = Alternatives.from_dict(record | {"statements": _statements(record)})
    assert few.columns["sex"].weak == "blind has fewer than the 245 draws that a share of 0.02 takes"
    assert few.verdict == "inconclusive"
    assert dict(few.told())["so"].startswith("cannot tell: blind has fewer")


@pytest.mark.long
def test_two_columns_have_a_statement_each_at_half_the_level(bank, data, tmp_path):
    """Against counts by hand: the file of the pick decides the rows, and a search of one column at half the level."""
    rng = np.random.default_rng(5)
    for name, seed in (("train", 1), ("test", 2)):
        table = people(6000, seed)
        table["race"] = np.where(rng.random(6000) < 0.3, "a", np.where(table.sex == "man", "b", "c"))
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    roles = ROLES | {"sensitive": ["sex", "race"]}
    both = [fairkit.load_data(tmp_path / f"{name}.csv", **roles) for name in ("train", "test")]
    given = {"laws": [LAW], "loss": 0.02, "jobs": 1}
    seen = fairkit.alternatives(bank / "model.onnx", both[0], test=both[1], **given)
    assert {name: one.groups for name, one in seen.columns.items()} == {
        "sex": ("man", "woman"),
        "race": ("a", "b", "c"),
    }
    from fairkit_cli.commands.alternatives import _screen

    assert max(map(len, _screen(seen).splitlines())) <= 80
    assert len(seen.about["groups"]) == 4  # of six, the crossings that are there
    alone = fairkit.alternatives(bank / "model.onnx", both[0], test=both[1], confidence=0.975,
                                 metric="demographic_parity_difference:race", **given)  # fmt: skip
    for name in ("none", "one_more", "arbitrary"):
        assert getattr(seen.columns["race"], name) == getattr(alone.columns["race"], name)
    # the pick has the largest sum of both reductions among those that lose little on the selection rows
    lots = {part: getattr(seen, part) for part in ("selection", "test")}
    codes = {"sex": [one[0] for one in seen.about["groups"]], "race": [one[1] for one in seen.about["groups"]]}

    def gap(part, column, place):
        moved = np.zeros(4) if place is None else (lots[part].gained - lots[part].lost)[place].sum(axis=1)
        yes, rows = lots[part].base[..., 1].sum(axis=1) + moved, lots[part].base.sum(axis=(1, 2))
        rates = [yes[m].sum() / rows[m].sum() for m in (np.array(codes[column]) == g for g in {*codes[column]})]
        return max(rates) - min(rates)

    less = [sum(gap("selection", c, None) - gap("selection", c, place) for c in codes) for place in range(12)]
    lost, error = losses(seen.selection, seen.aim)
    assert seen.pick == max((p for p in range(12) if lost[p] + 3 * error[p] <= 0.02), key=less.__getitem__)
    for name, column in seen.columns.items():
        assert column.found.reduction == pytest.approx(gap("test", name, None) - gap("test", name, seen.pick))
        assert column.aim.alpha == 0.025
    record = json.loads(json.dumps(seen.to_dict()))
    assert Alternatives.from_dict(record).statements() == seen.statements()
    (tmp_path / "both.json").write_text(json.dumps(record))
    report = fairkit.audit(str(bank / "model.onnx"), both[1], auditors=["alternatives"],
                           parameters={"alternatives": {"evidence": str(tmp_path / "both.json")}})  # fmt: skip
    for name, column in seen.columns.items():
        told = report.find("alternatives_reduction", sensitive=name)
        assert told.interval[1] == pytest.approx(column.none.at_most)
        assert told.confidence == 0.95  # of both columns together
    key, cert = tmp_path / "key.pem", tmp_path / "cert.json"
    given = ["--data", tmp_path / "test.csv", *columns(bank)[4:], "--sensitive", "race", "--auditor", "alternatives",
             "--set", f"alternatives.evidence={tmp_path / 'both.json'}"]  # fmt: skip
    checked("key", "new", key, "--no-passphrase")
    checked("certify", bank / "model.onnx", *given, "--key", key, "--output", cert)
    rows = ("--data", tmp_path / "test.csv", "--recompute", "--train", tmp_path / "train.csv")
    verified = checked("verify", cert, "--key", f"{key}.pub", "--model", bank / "model.onnx", *rows)
    assert "the counts of 2 alternatives, trained again" in verified.stdout
    assert [text for name, text in seen.told() if name == "model"][1].startswith("demographic parity difference (race)")


def test_test_rows_that_trained_are_refused(bank, data):
    with pytest.raises(DataError, match="also training rows"):
        fairkit.alternatives(bank / "model.onnx", data[0], test=data[0], laws=[LAW], jobs=1)


@pytest.mark.long
def test_one_file_copied_often_is_no_evidence_about_draws(search, bank, data):
    copies = {f"copy {n}": search.model for n in range(20)}
    seen = fairkit.alternatives(
        bank / "model.onnx", data[0], test=data[1], laws=[LAW], loss=0.02, candidates=copies, jobs=1
    )
    assert seen.columns["sex"].one_more == search.columns["sex"].one_more
    assert seen.columns["sex"].none.count == 32
    assert seen.columns["sex"].found.reduction == pytest.approx(search.columns["sex"].found.reduction)


@pytest.mark.long
def test_methods_of_the_house_are_tried_and_blind_leaves_out_what_reads_the_group(bank, data):
    tried = {"laws": [LAW], "loss": 0.02, "plugins_tried": ["threshold-optimizer"], "jobs": 1}
    names = [
        [one["name"] for one in fairkit.alternatives(bank / "model.onnx", data[0], test=data[1], **tried, **more)
         .candidates if one["law"] is None]
        for more in ({}, {"blind": True})
    ]  # fmt: skip
    assert len(names[0]) >= 2
    assert names[1] == []
    seeing = Law(name="seeing", learner="logistic", draws=2)
    with pytest.raises(ParameterError, match="'seeing' reads a sensitive column"):
        fairkit.alternatives(bank / "model.onnx", data[0], test=data[1], laws=[seeing], blind=True, jobs=1)


def test_a_draw_that_fails_counts_as_a_hit(bank, data):
    broken = Law(name="broken", learner="logistic", draws=3, settings={"C": -1.0})
    seen = fairkit.alternatives(bank / "model.onnx", data[0], test=data[1], laws=[broken], jobs=1)
    assert (seen.columns["sex"].one_more[0].hits, seen.columns["sex"].one_more[0].share) == (3, 1.0)
    assert "3 failed, taken for better ones (broken: " in dict(seen.told())["tried"]
    assert "'C' parameter" in seen.about["failed_because"]["broken"]
    assert seen.verdict == "inconclusive"
    Alternatives.from_dict(seen.to_dict())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "is no table"),
        ("[a]\nlearnr = 'lightgbm'", "did you mean"),
        ("[a]\nreweigh = 0.5", "reweigh"),
        ("[a.reweigh]\nlow = 0\nhigh = 2", "between 0 and 1"),
        ("[a.settings]\nC = {low = 0, high = 1, log = true}", "above 0"),
        ("[a.settings]\nC = {low = 3, high = 1}", "no value"),
        ("[a]\ndraws = 0", "whole number"),
        ("[a", "no TOML"),
        ("", "no law"),
    ],
)
def test_a_law_that_is_none_is_refused(text, message):
    with pytest.raises(ParameterError, match=f"(?i){message}"):
        read_laws(text, "laws.toml")


def test_distributions_are_drawn_as_declared():
    law = read_laws(
        "[a]\nbootstrap = true\n[a.settings]\nleaves = {low = 4, high = 63, log = true}\n"
        "rate = {low = 0.1, high = 0.2}\n"
        "kind = {choose = ['x', 'y']}\nfixed = 7\n[a.reweigh]\nlow = 0.0\nhigh = 1.0",
        "laws.toml",
    )[0]
    draws = [law.draw("0" * 64, number) for number in range(400)]
    leaves = [one.settings["leaves"] for one in draws]
    assert (min(leaves), max(leaves)) == (4, 63)
    assert all(isinstance(one, int) for one in leaves)
    assert np.median(np.log(leaves)) == pytest.approx(np.log(4 * 63) / 2, abs=0.2)
    assert {one.settings["kind"] for one in draws} == {"x", "y"}
    assert {one.settings["fixed"] for one in draws} == {7}
    assert np.mean([one.strength for one in draws]) == pytest.approx(0.5, abs=0.05)


def run(*arguments):
    return invoke("alternatives", *arguments, catch_exceptions=False)


def columns(bank):
    return ("--data", bank / "train.csv", "--test", bank / "test.csv", "--label", "repaid", "--favorable", "yes",
            "--sensitive", "sex")  # fmt: skip


@pytest.fixture(scope="module")
def written(bank):
    """What the command writes: exit code, screen."""
    (bank / "laws.toml").write_text(
        "[blind]\nlearner = 'logistic'\nwithout = ['sensitive']\nbootstrap = true\ndraws = 12\n"
        "[blind.settings]\nC = {low = 0.01, high = 10.0, log = true}\n"
    )
    return run(
        bank / "model.onnx", *columns(bank), "--laws", bank / "laws.toml", "--loss", "0.02",
        "--output", bank / "lda.json", "--save", bank / "fairer.onnx", "--set", "alternatives.jobs=1",
    )  # fmt: skip


def test_the_command_says_it_in_a_dozen_lines_and_writes_both_files(written, bank, search):
    assert written.exit_code == 1
    lines = written.stdout.splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("model      demographic parity difference (sex) 0.")
    assert "not about all possible models" in lines[-1]
    assert (bank / "fairer.onnx").read_bytes() == search.model
    assert json.loads((bank / "lda.json").read_text())["statements"]["verdict"] == "fail"


def test_a_plan_says_what_the_rows_can_tell_and_trains_nothing(bank):
    seen = run(bank / "model.onnx", *columns(bank), "--plan")
    # 5.3 sqrt(.04 (1/2100 + 1/2100)) of .7 of 6,000 rows in two equal groups
    assert seen.exit_code == 3
    assert "245 draws" in seen.stdout
    assert "from 0.033 on; 0.02 is asked" in seen.stdout
    assert run(bank / "model.onnx", *columns(bank), "--plan", "--reduction", "0.05").exit_code == 0
    # with selection rows of their own all 6,000: 5.3 sqrt(.04 (1/3000 + 1/3000))
    seen = run(bank / "model.onnx", *columns(bank), "--plan", "--selection", bank / "train.csv")
    assert "from 0.027 on" in seen.stdout


@pytest.mark.long
def test_the_command_checks_evidence(written, bank):
    seen = run(bank / "model.onnx", *columns(bank), "--check", bank / "lda.json")
    assert seen.exit_code == 0
    assert "2 draws trained again give the same counts" in seen.stdout


@pytest.mark.long
def test_evidence_is_certified_judged_and_recomputed(written, bank):
    rows = ["--data", str(bank / "test.csv"), *map(str, columns(bank)[4:])]
    asked = ["--auditor", "alternatives", "--set", f"alternatives.evidence={bank / 'lda.json'}"]
    rule = ["--max", "alternatives_reduction:sex=0.03"]
    key, cert = bank / "key.pem", bank / "cert.json"
    checked("key", "new", key, "--no-passphrase")
    # a model with less disparity was found: the rule is broken, for sure
    signed = checked("certify", bank / "model.onnx", *rows, *asked, *rule, "--key", key, "--output", cert, code=1)
    assert "the whole interval is above" in signed.stdout.replace("\n", " ")
    (bank / "lda.json").rename(bank / "away.json")  # who verifies has the certificate alone
    data = ("--model", bank / "model.onnx", "--data", bank / "test.csv")
    verified = checked("verify", cert, "--key", f"{key}.pub", *data, "--recompute", code=1)  # it holds, and says fail
    assert "all 4 findings, computed again" in verified.stdout
    assert "no alternative was trained again: name the rows to learn from, --train FILE" in verified.stderr
    again = ["verify", cert, "--key", f"{key}.pub", "--model", bank / "model.onnx", "--data", bank / "test.csv"]
    assert "used by --recompute only" in invoke(*again, "--train", bank / "train.csv").stderr.replace("\n", " ")
    trained = invoke(*again, "--recompute", "--train", bank / "train.csv")
    assert "the counts of 2 alternatives, trained again" in trained.stdout
    other = checked(*again, "--recompute", "--train", bank / "past.csv", code=1)  # not the rows that they learned from
    assert "another lot: train" in other.stdout.replace("\n", " ")
    (bank / "away.json").rename(bank / "lda.json")
    other = checked("audit", bank / "fairer.onnx", *rows, *asked, code=2)
    assert "another model" in other.stderr.replace("\n", " ")


@pytest.mark.long
def test_a_killed_search_goes_on_with_the_same_evidence(bank, search, tmp_path):
    (bank / "slow.toml").write_text((bank / "laws.toml").read_text().replace("draws = 12", "draws = 60"))
    arguments = [
        "alternatives", bank / "model.onnx", *columns(bank), "--laws", bank / "slow.toml", "--loss", "0.02",
    ]  # fmt: skip
    code = "import sys; from fairkit_cli.main import run; sys.argv[0] = 'fairkit'; run()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    started = subprocess.Popen(
        [*command, "--state", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.time() + 120
    while time.time() < deadline and len(list(tmp_path.rglob("*.bits"))) < 5:
        time.sleep(0.1)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    kept = len(list(tmp_path.rglob("*.bits")))
    assert kept >= 5
    ends = [
        subprocess.run([*command, "--output", str(tmp_path / f"{name}.json"), *more], capture_output=True, check=False)
        for name, more in (("resumed", ("--state", str(tmp_path))), ("fresh", ()))
    ]
    assert [one.returncode for one in ends] == [1, 1]
    assert (tmp_path / "resumed.json").read_bytes() == (tmp_path / "fresh.json").read_bytes()
