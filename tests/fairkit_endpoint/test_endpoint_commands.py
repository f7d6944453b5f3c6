"""`fairkit audit --endpoint` and `fairkit attest` against a server; the page's commands run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from tests.commands import invoke

from fairkit_datasets.loans import loans_table

pytest.importorskip("httpx")

ROOT = Path(__file__).parents[2]
ASKED = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")


@pytest.fixture
def folder(tmp_path, served_file):
    pq.write_table(loans_table(3_000, 5), tmp_path / "loans.parquet")
    (tmp_path / "credit.onnx").write_bytes(served_file.read_bytes())
    return tmp_path


def fairkit(folder, *told, **environment):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in environment.items():
            patch.setenv(name, value)
        done = invoke(*told)
    return SimpleNamespace(returncode=done.exit_code, stdout=done.stdout, stderr=done.stderr)


@pytest.mark.long
def test_the_page_runs_as_typed(folder, serve):
    url = serve(folder / "credit.onnx")
    page = (ROOT / "docs" / "how-to" / "endpoints.md").read_text("utf-8")
    blocks = re.findall(r"```sh(?: exit=\d+)?\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 1
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    printed = [
        subprocess.run(
            ["bash", "-ec", block.replace("http://localhost:8000", url)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for block in blocks
    ]
    assert f"credit at {url}" in printed[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("told", "said"),
    [
        (("audit", "--endpoint", "http://me:s3cret@127.0.0.1:1", "--model-name", "m"), "FAIRKIT_ENDPOINT_TOKEN"),
        (("audit", "--endpoint", "http://127.0.0.1:9"), "--model-name"),
        (("audit", "--endpoint", "http://127.0.0.1:9", "--model-name", "m"), "cannot be reached"),
        (("audit", "credit.onnx", "--model-name", "m"), "--endpoint"),
        (("audit", "credit.onnx", "--endpoint", "http://127.0.0.1:9", "--model-name", "m"), "not both"),
        (("audit", "--endpoint", "http://127.0.0.1:9", "--model-name", "m", "--set", "endpoint.rate=-1"), "rate"),
    ],
)
def test_bad_input_is_one_message(folder, told, said):
    found = fairkit(folder, *told, "--data", "loans.parquet", *ASKED)
    assert found.returncode == 2, found.stderr
    assert said in found.stderr
    assert "s3cret" not in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.long
def test_a_certificate_about_an_endpoint_is_repeated_by_asking_again(folder, serve):
    url = serve(folder / "credit.onnx")
    assert fairkit(folder, "key", "new", "me").returncode == 0
    asked = ("--endpoint", url, "--model-name", "credit", "--data", "loans.parquet", *ASKED)
    made = fairkit(folder, "certify", *asked, "--key", "me", "--output", "c.json")
    assert made.returncode == 0, made.stderr
    repeat = ("verify", "c.json", "--key", "me.pub", "--data", "loans.parquet", "--recompute")
    again = fairkit(folder, *repeat, "--endpoint", url)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "computed again" in again.stdout
    assert f"about answers of {url}" in again.stdout
    unnamed = fairkit(folder, *repeat)  # an address in a certificate is asked only where the user names it too
    assert unnamed.returncode == 2
    assert f"--endpoint {url}" in unnamed.stderr


@pytest.mark.long
def test_a_certificate_about_an_endpoint_is_never_one_about_a_model(folder, serve):
    url = serve(folder / "credit.onnx")
    assert fairkit(folder, "key", "new", "me").returncode == 0
    asked = ("--endpoint", url, "--model-name", "credit", "--data", "loans.parquet", *ASKED)
    rule = ("--max", "demographic_parity_difference:sex=0.9")
    assert fairkit(folder, "certify", *asked, *rule, "--key", "me", "--output", "c.json").returncode == 0
    about = fairkit(folder, "verify", "c.json", "--key", "me.pub", "--model", "credit.onnx")
    assert about.returncode == 1
    assert f"about answers of {url}" in about.stdout
    registry = ("--registry", "r")
    assert fairkit(folder, "registry", "add", "credit", "credit.onnx", *registry).returncode == 0
    added = fairkit(folder, "registry", "add", "credit", "credit.onnx", "--certificate", "c.json", *registry)
    assert added.returncode != 0
