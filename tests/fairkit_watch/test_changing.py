"""Other rules for a watch: the promise holds for what comes after; a kill at any step loses nothing."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fairkit
from fairkit_watch import changing
from fairkit_watch.changing import NEXT, change, recover
from fairkit_watch.records import read_settings
from fairkit_watch.watch import Watch

TODAY = datetime.date(2026, 3, 1)


def _rows(day, rows=600, gap=0.0):
    rng = np.random.default_rng(day)
    sex = rng.choice(["f", "m"], rows)
    yes = rng.random(rows) < 0.5 + gap * (sex == "m")
    return {"sex": sex, "d": yes.astype(int), "y": rng.integers(0, 2, rows)}


def _limit(metric, limit=0.1):
    return fairkit.Rule(metric=metric, sensitive="sex", max=limit)


@pytest.fixture
def folder(tmp_path):
    rules = [_limit("demographic_parity_difference")]
    with Watch.create(tmp_path / "w", rules, decision="d", favorable_decision=1, sensitive=["sex"]) as watch:
        watch.add(_rows(1, gap=0.4), day="2026-02-01", today=TODAY)
        watch.add(_rows(2, gap=0.4), day="2026-02-02", today=TODAY)
        assert watch.look(TODAY).verdict == "fail"
    return tmp_path / "w"


def _with_outcomes(folder):
    settings = read_settings(folder)
    rules = (*settings.rules, _limit("equal_opportunity_difference", 0.2).to_dict())
    return replace(settings, rules=rules, columns=replace(settings.columns, label="y", favorable=1))


def test_new_rules_speak_about_later_decisions_and_name_what_was_before(folder):
    before = read_settings(folder)
    former = change(folder, _with_outcomes(folder))
    with Watch.open(folder) as watch:
        assert watch.settings.since == "2026-02-03"
        assert watch.look(TODAY).rows == 0
        assert watch.settings.follows["settings"] == before.digest
        with pytest.raises(fairkit.DataError, match="before this watch began"):
            watch.add(_rows(3), day="2026-02-02", today=TODAY)
        watch.add(_rows(3), day="2026-02-03", today=TODAY)
        look = watch.look(TODAY)
        assert {one.metric for one in look.rules} == {"demographic_parity_difference", "equal_opportunity_difference"}
        assert "1,200 decisions and 1 alarms" in look.notes[0] or "1,200 decisions" in look.notes[0]
        assert "at least 90%" in look.notes[0]
    with Watch.open(former, write=False) as watch:  # as it was, alarms and all
        assert watch.look(TODAY).verdict == "fail"
        assert watch.settings == before


def test_another_set_follows_the_first(folder):
    change(folder, _with_outcomes(folder))
    settings = read_settings(folder)
    assert change(folder, replace(settings, confidence=0.9)).name == "w.before-2"
    assert read_settings(folder).follows["settings"] == settings.digest
    with pytest.raises(fairkit.ParameterError, match="nothing would change"):
        change(folder, read_settings(folder))


def test_the_digest_of_a_first_watch_is_that_of_earlier_versions(folder):
    assert "follows" not in read_settings(folder).to_dict()


def test_a_bad_rule_changes_nothing(folder):
    settings = read_settings(folder)
    with pytest.raises(fairkit.FairkitError):
        change(folder, replace(settings, rules=(_limit("equal_opportunity_difference").to_dict(),)))
    recover(folder)
    assert read_settings(folder) == settings
    assert sorted(one.name for one in folder.parent.iterdir()) == ["w"]


@pytest.mark.parametrize("step", [0, 1])
def test_a_kill_between_the_moves(folder, monkeypatch, step):
    before = read_settings(folder)
    wanted = _with_outcomes(folder)
    moves = []
    move = Path.replace

    def dies(self, target):
        if self == folder or self.name == NEXT:
            if len(moves) == step:
                raise KeyboardInterrupt
            moves.append(target)
        return move(self, target)

    monkeypatch.setattr(changing.Path, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        change(folder, wanted)
    monkeypatch.undo()
    recover(folder)
    after = read_settings(folder)
    if step == 0:
        assert after == before
        change(folder, wanted)
    assert read_settings(folder).rules == wanted.rules
    with Watch.open(folder.parent / "w.before-1", write=False) as watch:
        assert watch.look(TODAY).rows == 1_200
