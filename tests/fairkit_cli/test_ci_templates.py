"""The GitHub action, the GitLab template and the pre-commit hook: their scripts run as their platforms run them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
POLICY = '[[policy]]\nmetric = "demographic_parity_difference"\nsensitive = "sex"\nmax = {limit}\n'


@pytest.fixture
def workspace(loans_model, tmp_path):
    """A repository with a model, its data and a policy; and a command that runs a script in it."""
    (tmp_path / "model.onnx").write_bytes(loans_model.path.read_bytes())
    (tmp_path / "rows.parquet").write_bytes(loans_model.data.read_bytes())
    roles = 'label = "decision"\nfavorable = "approved"\nsensitive = ["sex"]\n'

    def run(script, limit, **more):
        policy = POLICY.format(limit=limit)
        (tmp_path / "fairkit.toml").write_text(f'[data]\npath = "rows.parquet"\n{roles}{policy}', encoding="utf-8")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, **more},
            capture_output=True,
            text=True,
            check=False,
        )

    return tmp_path, run


def _action(tmp_path, run, limit, **inputs):
    """Run the action's audit step with its inputs, as GitHub's runner does; return the exit code, summary, outputs."""
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    given = {name: one.get("default", "") for name, one in action["inputs"].items()} | inputs
    step = next(one for one in action["runs"]["steps"] if one.get("id") == "audit")
    environment = {
        name: given[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in step["env"].items()
    }
    files = {"GITHUB_STEP_SUMMARY": tmp_path / "summary", "GITHUB_OUTPUT": tmp_path / "output"}
    for file in files.values():
        file.write_text("", encoding="utf-8")
    told = {name: str(path) for name, path in files.items()}
    assert step["shell"] == "bash"
    assert "${{" not in step["run"]
    result = run(step["run"], limit, **environment, **told)
    return result, *(path.read_text("utf-8") for path in files.values())


@pytest.mark.long
def test_the_action_fails_the_job_and_tells_why_in_its_summary(workspace):
    folder, run = workspace
    result, summary, output = _action(folder, run, 0.001, model="model.onnx")
    assert result.returncode == 1
    assert summary.startswith("## ❌ FAIL")
    assert output == "verdict=fail\n"
    assert ET.parse(folder / "fairkit-report" / "junit.xml").getroot().get("failures") == "1"
    assert (folder / "fairkit-report" / "report.html").stat().st_size > 10_000


@pytest.mark.long
def test_the_action_takes_options_and_lets_an_undecided_policy_pass_if_asked(workspace):
    folder, run = workspace
    result, _, output = _action(
        folder, run, 0.9, model="model.onnx", data="rows.parquet", options="--min=accuracy=0.5\n--confidence\n0.9"
    )
    assert (result.returncode, output) == (0, "verdict=pass\n"), result.stderr
    value = 0.0
    for line in (folder / "fairkit-report" / "summary.md").read_text("utf-8").splitlines():
        if line.startswith("| demographic"):
            value = float(line.split(" | ")[2])
            break
    for undecided, code in (("fail", 3), ("pass", 0)):
        result, _, output = _action(folder, run, value, model="model.onnx", undecided=undecided)
        assert (result.returncode, output) == (code, "verdict=inconclusive\n")


def test_no_input_of_the_action_is_run(workspace):
    folder, run = workspace
    hostile = '"; touch hacked; "$(touch hacked)`touch hacked`'
    result, _, output = _action(folder, run, 0.9, model=hostile, data=hostile, options=hostile)
    assert result.returncode == 2
    assert output == ""
    assert not (folder / "hacked").exists()


@pytest.mark.long
def test_the_gitlab_job_keeps_its_reports(workspace):
    folder, run = workspace
    job = yaml.safe_load((ROOT / "templates" / "fairkit.gitlab-ci.yml").read_text("utf-8"))["fairkit"]
    result = run("\n".join(job["script"]), 0.001, **job["variables"])
    assert result.returncode == 1
    assert (folder / job["artifacts"]["reports"]["junit"]).is_file()
    assert (folder / job["artifacts"]["paths"][0] / "report.html").is_file()


@pytest.mark.long
def test_the_hook_audits_each_model_that_changed(workspace):
    folder, run = workspace
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (folder / "other.onnx").write_bytes((folder / "model.onnx").read_bytes())
    for limit, code in ((0.9, 0), (0.001, 1)):
        result = run(f"{hook['entry']} model.onnx other.onnx", limit)
        assert result.returncode == code, result.stderr
        assert result.stdout.count("policy rule") == 2
    broken = run(f"{hook['entry']} {shlex.quote('missing one.onnx')} model.onnx", 0.001)
    assert broken.returncode == 2
