"""The page of a watch in a browser: three days, three years, hostile names, nothing at all."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.commands import invoke

from fairkit import Rule, Watch
from fairkit_cli.pages.watch import _needed, watch_page
from fairkit_watch.settings import Reference, canonical

DPD = "demographic_parity_difference:sex"
FIRST = datetime.date(2021, 3, 1)


def filled(folder: Any, days: int, drift: int, names: tuple[str, str] = ("female", "male")) -> None:
    """A watch of so many days, of which some are missing; its records are written at once."""
    reference = Reference(numbers={DPD: (0.04, 0.01, 0.07)})
    policy = [Rule.parse(f"{DPD}=0.1", "max"), Rule.parse("selection_rate=0.3", "min")]
    more = {"groups": {"sex": names}, "reference": reference, "model": "credit@3", "alias": "production"}
    rng = np.random.default_rng(1)
    with Watch.create(folder, policy, decision="decision", sensitive=["sex"], **more) as watch:
        told = {}
        for t in range(days):
            if 10 <= t < 14:
                continue
            women = int(rng.binomial(600, 0.45))
            men = 600 - women
            yes = rng.binomial(women, 0.45), rng.binomial(men, 0.48 + (0.15 if t >= drift else 0))
            own = {n: {"d": [int(m - y), int(y)]} for n, m, y in zip(names, (women, men), yes, strict=True)}
            told[(FIRST + datetime.timedelta(t)).isoformat()] = {
                "": {"": {"d": [int(600 - sum(yes)), int(sum(yes))]}},
                "sex": own,
            }
        counts = hashlib.sha256(canonical(told)).hexdigest()
        watch.book.append({"kind": "add", "batch": "all", "counts": counts, "rows": 600 * len(told), "days": told})
        watch.new_alarms()


def page(folder: Any) -> str:
    done = invoke("watch", "show", folder, "--format", "html")
    assert done.exit_code in (0, 1, 3), done.output
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize(("days", "drift"), [(3, 9), (1_096, 700)])
def test_three_days_and_three_years(days, drift, tmp_path, browse, faults):
    filled(tmp_path / "w", days, drift)
    content = page(tmp_path / "w")
    if days == 3:
        seen = browse(content)
        assert (seen.console, seen.requests) == ([], [])
    assert faults(content) == []
    assert "credit@3" in content
    assert "the certificate&#x27;s number" in content or "the certificate's number" in content
    shown = set(re.findall(r">(\d\d [A-Z][a-z]{2}|[A-Z][a-z]{2} \d{4})<", content))
    if days == 3:
        assert shown >= {"01 Mar", "02 Mar", "03 Mar"}
        assert "Broken lately" not in content
        assert "no data" not in content
    else:
        assert {text[-4:] for text in shown} >= {"2021", "2022", "2023"}
        assert "Broken lately" in content
        assert "4 days without data" in content
        assert len(content) < 900_000


@pytest.mark.long
def test_a_page_without_decisions_and_one_with_hostile_names(tmp_path, browse):
    Watch.create(tmp_path / "empty", [Rule.parse(f"{DPD}=0.1", "max")], decision="d", sensitive=["sex"]).close()
    content = page(tmp_path / "empty")
    assert "no decisions yet" in content
    hostile = "<script>alert(1)</script>\"'&", "\u202emale"
    filled(tmp_path / "w", 30, 99, hostile)
    content = page(tmp_path / "w")
    assert "<script>alert" not in content
    assert "\u202e" not in content
    assert browse(content).console == []


def test_an_alarm_that_is_divided_says_what_divides_it_further(tmp_path):
    filled(tmp_path / "w", 60, 30)
    with Watch.open(tmp_path / "w", write=False) as watch:
        look = watch.look(None)
    assert look.alarms
    command = "fairkit compare MODEL --data BEFORE --against SINCE"
    divided = [dataclasses.replace(one, evidence={**one.evidence, "parts": {}}) for one in look.alarms]
    texts = [str(watch_page(dataclasses.replace(look, alarms=list(alarms))).parts) for alarms in (look.alarms, divided)]
    assert [command in text for text in texts] == [False, True]


def quiet(folder: Any, days: int, gap: float) -> None:
    """A watch of 600 decisions a day, of whose two halves one is approved `gap` more often, without any noise."""
    yes = {"female": 135, "male": round(300 * (0.45 + gap))}
    day = {"": {"": {"d": [600 - sum(yes.values()), sum(yes.values())]}}}
    day["sex"] = {group: {"d": [300 - chosen, chosen]} for group, chosen in yes.items()}
    with Watch.create(folder, [Rule.parse(f"{DPD}=0.1", "max")], decision="decision", sensitive=["sex"]) as watch:
        told = {(FIRST + datetime.timedelta(t)).isoformat(): day for t in range(days)}
        counts = hashlib.sha256(canonical(told)).hexdigest()
        watch.book.append({"kind": "add", "batch": "all", "counts": counts, "rows": 600 * days, "days": told})
        watch.new_alarms()


def test_so_many_people_as_a_page_says_raise_an_alarm(tmp_path):
    """A gap of .13 under a limit of .1 is quiet for 14 days; the page says when it will not be, and then it is not."""
    quiet(tmp_path / "w", 14, 0.13)
    told = re.search(r"about ([\d,]+) people, 3 weeks at this pace, would raise one", page(tmp_path / "w"))
    people = int(told[1].replace(",", ""))
    for share, code in ((0.9, 3), (1.1, 1)):
        quiet(tmp_path / f"{share}", round(share * people / 600), 0.13)
        assert invoke("watch", "show", tmp_path / f"{share}").exit_code == code


def test_the_people_that_an_alarm_needs_by_hand():
    """A band of .05 after 10,000 decisions fits between a week's .14 and the limit .1 after 15,625: 5 weeks."""
    rule = SimpleNamespace(kind="max", limit=0.1, value=0.12, interval=(0.07, 0.17), verdict="undecided")
    course = SimpleNamespace(weeks=[("", "", 0.09, None), ("", "", 0.11, None), ("", "", 0.14, None)])
    told = _needed(SimpleNamespace(rows=10_000), rule, course).content
    assert told.startswith("2 of 3 weeks are beyond the limit")
    assert "about 15,700 people, 5 weeks at this pace" in told
    assert _needed(SimpleNamespace(rows=10_000), SimpleNamespace(**vars(rule) | {"verdict": "fail"}), course) is None
