"""One audit in several formats, and where its time went."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import fairkit


@pytest.fixture(scope="module")
def report(loans_model):
    data = fairkit.load_data(loans_model.data, label="decision", favorable="approved", sensitive="sex")
    rule = fairkit.Rule("demographic_parity_difference", "sex", max=0.001)
    return fairkit.audit(loans_model.path, data, policy=[rule])


ROLES = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")


@pytest.mark.long
def test_one_audit_is_written_in_every_format(run, loans_model, tmp_path):
    files = [tmp_path / f"report.{end}" for end in ("html", "md", "json", "xml")]
    saves = [word for file in files for word in ("--save", str(file))]
    rule = ("--max", "demographic_parity_difference:sex=0.001")
    result = run("audit", loans_model.path, "--data", loans_model.data, *ROLES, *rule, *saves)
    assert result.exit_code == 1
    assert "FAIL" in result.stdout
    page, text, record, junit = (file.read_text("utf-8") for file in files)
    assert page.startswith("<!doctype html>")
    assert text.startswith("## ❌ FAIL: 1 of 1 policy rule broken")
    assert json.loads(record)["verdict"] == "fail"
    assert ET.fromstring(junit).get("failures") == "1"


@pytest.mark.parametrize("name", ["report", "report.pdf2", "missing/report.html"])
def test_a_file_that_cannot_be_written_is_said_before_the_audit(run, loans_model, tmp_path, name):
    kept = tmp_path / "kept.json"
    words = ("--save", str(kept), "--save", str(tmp_path / name))
    result = run("audit", loans_model.path, "--data", loans_model.data, *ROLES, *words)
    assert result.exit_code == 2
    assert name.split("/")[-1] in result.stderr or "missing" in result.stderr
    assert not kept.exists()


def test_markdown_has_the_numbers_and_no_markup_of_strangers(report):
    text = report.to_markdown()
    finding = report.find("demographic_parity_difference", "sex")
    line = next(line for line in text.splitlines() if re.match(r"\| demographic\\?_parity\\?_difference \| sex", line))
    assert f"{finding.value:.3f}" in line
    assert "### Groups of sex" in text
    widths = {line.count(" | ") for line in text.splitlines() if line.startswith("| demographic")}
    assert widths == {3}


def test_names_of_groups_are_text_in_markdown():
    """A table's author cannot write a heading, a link, a cell or a script into a pull request."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    group = np.where(rng.random(300) > 0.5, "a|b<script>x</script>\n## ✅ PASS", "[c](javascript:1)`")

    class Model:
        classes_ = np.array([0, 1])

        def predict(self, frame):
            return (np.asarray(frame)[:, 0] > 0.2).astype(int)

    lines = fairkit.audit(Model(), X, (X[:, 0] > 0) * 1, sensitive_features={"s": group}).to_markdown().splitlines()
    assert [line for line in lines if line.startswith("## ")] == ["## No verdict: no policy was given"]
    (cell,) = [line for line in lines if "javascript" in line]
    assert cell.startswith("| \\[c\\](javascript:1)\\` |")
    (other,) = [line for line in lines if "script" in line and "javascript" not in line]
    assert other.startswith("| a\\|b\\<script\\>x\\</script\\>")


@pytest.mark.long
def test_a_result_is_saved_in_the_format_of_its_name(report, tmp_path):
    for name in ("a.html", "a.md", "a.json", "a.xml"):
        assert report.save(tmp_path / name).stat().st_size > 100
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == json.loads(json.dumps(report.to_dict()))
    with pytest.raises(fairkit.FairkitError, match="does not say its format"):
        report.save(tmp_path / "a.txt")


@pytest.mark.long
def test_a_notebook_shows_the_page_in_a_frame_of_its_own(report):
    shown = report._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts"')
    assert "<!doctype" not in shown
    assert "&lt;!doctype html&gt;" in shown


def test_without_the_renderer_a_notebook_shows_text(report, monkeypatch):
    from fairkit.results import rendering

    def absent(result, form):
        raise fairkit.FairkitError("vl-convert-python is not installed")

    monkeypatch.setattr(rendering, "rendered", absent)
    assert report._repr_html_().startswith("<pre>")
    assert "demographic_parity_difference of sex" in report._repr_html_()


@pytest.mark.long
def test_a_comparison_has_markdown_too(loans_model):
    data = fairkit.load_data(loans_model.data, label="decision", favorable="approved", sensitive="sex")
    text = fairkit.compare([loans_model.path] * 2, data).to_markdown()
    assert "| accuracy | all rows |" in text
    with pytest.raises(fairkit.FairkitError, match="no JUnit form"):
        fairkit.compare([loans_model.path] * 2, data).save("x.xml")


# `--timings` of long commands: on stderr for people, under `timings` for programs, never in what is signed.
def options(loans_model):
    roles = ["--label", "decision", "--favorable", "approved", "--sensitive", "sex"]
    return ["audit", str(loans_model.path), "--data", str(loans_model.data), *roles]


def process(*arguments):
    code = "from fairkit_cli.main import run; run()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_long_work_says_how_far_it_is_where_there_is_no_terminal(monkeypatch, capsys):
    from fairkit_cli.terminal import output as console

    with console.progress_bar() as progress:
        progress("searching", 1, 20)
    assert capsys.readouterr().err == ""  # nothing of short work
    monkeypatch.setattr(console, "PAUSE", 0.0)
    with console.progress_bar() as progress:
        progress("searching", 12, 120)
    assert capsys.readouterr().err == "fairkit: searching, 12 of 120; 0 s so far\n"


@pytest.mark.long
def test_audit_prints_its_phases(loans_model):
    plain = process(*options(loans_model))
    timed = process("--timings", *options(loans_model))
    assert timed.stdout == plain.stdout
    told = {line.split("  ")[1].strip() for line in timed.stderr.splitlines()[1:]}
    assert {"start", "load model", "read", "score", "measure", "intervals", "write", "all"} <= told
    assert "timings" not in plain.stderr


@pytest.mark.long
def test_json_has_them_beside_the_report(loans_model):
    plain = json.loads(process(*options(loans_model), "--format", "json").stdout)
    timed = json.loads(process("--timings", *options(loans_model), "--format", "json").stdout)
    taken = timed.pop("timings")
    assert timed == plain
    assert taken["cpu_seconds"] == pytest.approx(sum(p["cpu_seconds"] for p in taken["phases"]), abs=0.01)
    assert 0.05 < taken["cpu_seconds"] < 600


@pytest.mark.long
def test_a_certificate_has_none(loans_model, tmp_path):
    assert process("key", "new", str(tmp_path / "k")).returncode == 0
    target = tmp_path / "c.json"
    command = ["certify", *options(loans_model)[1:], "--key", str(tmp_path / "k"), "--output", str(target)]
    done = process("--timings", *command)
    assert done.returncode == 0, done.stderr
    assert "phase" in done.stderr
    import base64

    payload = base64.b64decode(json.loads(target.read_text())["payload"]).decode()
    assert "cpu_seconds" not in payload


def test_a_registry_command_prints_its_phases(tmp_path):
    place = ["--registry", str(tmp_path / "r")]
    assert process("registry", "list", *place).returncode in (0, 2)
    timed = process("--timings", "registry", "list", *place)
    assert "start" in timed.stderr
    assert "all" in timed.stderr
