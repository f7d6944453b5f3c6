"""The panel that moves thresholds on an audit's page, against audits under those thresholds."""

from __future__ import annotations

import html
import json
import re
import subprocess

import numpy as np
import pytest

import fairkit
from fairkit.results.evidence import Histogram, evidence_of
from fairkit.results.rules import Rule
from fairkit_cli.pages.groups import panel
from fairkit_cli.render.html import html_parts

RULE = Rule(metric="demographic_parity_difference", sensitive="sex", max=0.1)


def _table(threshold=None):
    rng = np.random.default_rng(3)
    sex = np.array(["f", "m", "x"])[rng.integers(0, 3, 1_500)]
    y = rng.integers(0, 2, 1_500)
    score = np.round(np.clip(0.3 + 0.3 * y + 0.1 * (sex == "m") + rng.normal(0, 0.2, 1_500), 0, 1), 3)
    made = {"sex": sex, "y": y, "s": score}
    return made if threshold is None else made | {"d": (score >= threshold).astype(int)}


def _report(**predictions):
    threshold = predictions.pop("threshold", None)
    data = fairkit.load_data(_table(threshold), label="y", favorable=1, sensitive="sex", predictions=predictions)
    return fairkit.audit(None, data, policy=[RULE])


def _told(report):
    finding = next(one for one in report.findings if one.metric == "statistical_parity_ks")
    made = panel(report, finding, evidence_of(finding, Histogram))
    made = html_parts([made])[0]
    assert "Not signed, not audited: a what-if." in made
    return json.loads(html.unescape(re.search(r'data-scores="([^"]*)"', made)[1]))


@pytest.fixture(scope="module")
def told():
    return _told(_report(score="s"))


@pytest.mark.parametrize("threshold", [0.3, 0.7])
def test_it_starts_at_the_threshold_of_the_model(threshold):
    told = _told(_report(score="s", decision="d", threshold=threshold))
    assert told["edges"][told["start"]] == pytest.approx(threshold, abs=max(np.diff(told["edges"])))
    report = _report(score="s", decision="d", threshold=threshold)
    above = sum(sum(map(sum, bins[told["start"] :])) for bins in told["groups"].values())
    assert above == pytest.approx(report.decisions["favorable"], abs=1_500 * max(np.diff(told["edges"])))


@pytest.mark.long
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_a_moved_threshold_gives_what_an_audit_of_it_finds(node, told, share):
    place = min(range(len(told["edges"])), key=lambda i: abs(told["edges"][i] - share))
    from tests.fairkit_cli.verifier.test_modules import SOURCE

    code = (
        "import { outcome } from './whatif.mjs'; import { readFileSync } from 'node:fs'; const told = JSON.parse(readFileSync(0));"
        f"console.log(JSON.stringify(outcome(told, Object.keys(told.groups).map(() => {place}))));"
    )
    page = json.loads(
        subprocess.run(
            [node, "--input-type=module", "-e", code],
            input=json.dumps(told),
            cwd=SOURCE,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    audit = _report(decision="d", threshold=told["edges"][place])
    for one in page["disparities"]:
        finding = audit.find(one["metric"], "sex")
        assert one["value"] == pytest.approx(finding.value, abs=1e-12), one
        assert one["interval"] == pytest.approx(finding.interval, abs=1e-9), one
    rates = audit.find("selection_rate_difference", "sex").groups
    for group in rates:
        own = next(one for one in page["each"] if one["name"] == group.group)
        assert own["rates"]["selection_rate"] == pytest.approx([group.value, *group.interval], abs=1e-9)
    assert page["judged"][0]["verdict"] == audit.policy[0].verdict


def test_weights_and_other_tasks_have_no_panel(told):
    import dataclasses

    report = _report(score="s")
    finding = next(one for one in report.findings if one.metric == "statistical_parity_ks")
    histogram = evidence_of(finding, Histogram)
    weighted = dataclasses.replace(report, data=dataclasses.replace(report.data, weights="w"))
    several = dataclasses.replace(report, model=dataclasses.replace(report.model, task="multiclass"))
    assert panel(weighted, finding, histogram) is None
    assert panel(several, finding, histogram) is None
    fractional = Histogram(
        histogram.edges, {name: [[a + 0.5, b] for a, b in bins] for name, bins in histogram.groups.items()}
    )
    assert panel(report, finding, fractional) is None


@pytest.mark.long
def test_the_panel_in_a_browser(browser, axe, tmp_path):
    pytest.importorskip("vl_convert", reason="pages need vl-convert-python")
    from fairkit_cli.formats import html as report_page

    path = tmp_path / "audit.html"
    path.write_text(report_page(_report(score="s")), "utf-8")
    browser.open(path)
    assert browser.run("document.querySelector('.whatif').hidden") is False
    before = browser.run("document.querySelector('.whatif table').innerText")
    move = "const s = document.getElementById('whatif-0-all'); s.value = Number(s.value) + 4; s.dispatchEvent(new Event('input'))"
    browser.run(f"(() => {{ {move} }})()")
    assert browser.run("document.querySelector('.whatif table').innerText") != before
    browser.run("document.getElementById('whatif-0-apart').click()")
    assert browser.run("document.getElementById('whatif-0-0').offsetParent !== null")
    assert browser.run("document.getElementById('whatif-0-all').offsetParent === null")
    assert "demographic_parity_difference:sex ≤ 0.1" in browser.text()
    browser.run(axe + "; 0")
    code = "axe.run('.whatif').then(r => JSON.stringify(r.violations.map(one => [one.id, one.nodes[0].html])))"
    assert json.loads(browser.run(code)) == []
    assert browser.requests() == []
    assert browser.complaints() == []
