"""The small distribution: what is in it, and that it answers as `fairkit verify` does."""

from __future__ import annotations

import ast
import base64
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "registry" / "fairkit_verify"
GOLDEN = ROOT / "tests" / "fairkit_registry" / "golden"

LATER = {
    "fairkit",  # `fairkit.plugins`, in `third_party`: there are none without fairkit
    "fairkit.auditing.run",
    "fairkit.auditors",
    "fairkit.data.loading",
    "fairkit.plugins",
    "fairkit.progress",
    "fairkit.results.robustness",
}
"""Modules of ours that functions in the small verifier import and that it lacks: none is met in a check."""


def test_the_closure_is_small_and_light(build_hook):
    modules = build_hook.closure()
    outside = {
        name.partition(".")[0]
        for path in modules.values()
        for name in build_hook._imported(path)
        if build_hook._file(name) is None and name.partition(".")[0] not in build_hook.SOURCES
    }
    assert outside <= sys.stdlib_module_names
    assert "fairkit_registry.evidence.arithmetic" in modules
    assert sum(len(path.read_text("utf-8").splitlines()) for path in modules.values()) < 10_250


@pytest.mark.long
def test_what_functions_import_is_there_or_known(build_hook):
    modules = build_hook.closure()
    nodes = [node for path in modules.values() for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    named = {
        node.module
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in build_hook.SOURCES
    }
    assert named - set(modules) - LATER == set()


def test_its_version_is_fairkit_s():
    own = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert own["version"] == whole["version"]
    assert [text.partition(">")[0] for text in own["dependencies"]] == ["cryptography", "platformdirs"]


@pytest.mark.long
def test_the_wheel_holds_the_assembled_package(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path, PROJECT],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "fairkit_verify/fairkit_registry/evidence/dsse.py" in names
    assert "fairkit_verify/fairkit_registry/evidence/declared.json" in names
    assert all(name.startswith(("fairkit_verify/", "fairkit_verify-")) for name in names)
    assert wheel.stat().st_size < 400_000


CASES = [
    ("certificate", "key.pub", True),
    ("certificate", "p256.pub", False),
    ("certificate-p256", "p256.pub", False),
    ("table-certificate", "key.pub", False),
    ("no-policy", "key.pub", False),
]


def _both(small, run, tmp_path, *arguments):
    """Run both commands, each with a state folder of its own."""
    own = small(*arguments, state=tmp_path / "small")
    whole = run("verify", *map(str, arguments))
    return own, whole


@pytest.mark.long
@pytest.mark.parametrize(("name", "key", "model"), CASES)
@pytest.mark.parametrize("form", ["table", "json"])
def test_it_answers_as_fairkit_verify(name, key, model, form, small, run, golden, tmp_path):
    arguments = [golden(name), "--key", GOLDEN / key, "--format", form]
    arguments += ["--model", GOLDEN / "model.onnx"] if model else []
    own, whole = _both(small, run, tmp_path, *arguments)
    assert own.returncode == whole.exit_code, own.stderr
    assert own.stdout == whole.stdout


def test_a_contradiction_is_refused_in_the_same_words(small, run, golden, tmp_path):
    """A trusted key signs numbers that its own counts refute: an upper end that is too low."""
    from fairkit_registry.evidence import signers
    from fairkit_registry.evidence.dsse import Envelope, sign
    from fairkit_registry.jsonio import canonical

    public = signers.new_key_pair(tmp_path / "k")
    envelope = Envelope.from_bytes(golden("certificate").read_bytes())
    statement = json.loads(envelope.payload)
    finding = next(
        one for one in statement["predicate"]["findings"] if one["metric"] == "demographic_parity_difference"
    )
    finding["interval"][1] = finding["value"] + 0.01
    raw = sign(canonical(statement), envelope.payload_type, [signers.load_secret(tmp_path / "k")]).to_bytes()
    (tmp_path / "forged.json").write_bytes(raw)
    assert public.kind == "ed25519"
    own, whole = _both(small, run, tmp_path, tmp_path / "forged.json", "--key", tmp_path / "k.pub")
    assert own.returncode == whole.exit_code == 1
    assert own.stdout == whole.stdout
    assert "the counts of its groups give" in own.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["missing.json", "--key", GOLDEN / "key.pub"], 2, "cannot read the certificate missing.json"),
        (["missing.json"], 2, "--key"),
        ([GOLDEN / "key.pub", "--key", GOLDEN / "key.pub"], 1, "not a certificate"),
        ([GOLDEN / "key.pub", "--key", GOLDEN / "model.onnx"], 2, "is not a public key"),
    ],
)
def test_bad_input_is_one_message(small, tmp_path, arguments, code, text):
    outcome = small(*arguments, state=tmp_path)
    assert outcome.returncode == code
    assert text in outcome.stdout + outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_the_table_s_digest(small, golden, tmp_path):
    path = golden("certificate")
    payload = json.loads(base64.b64decode(json.loads(path.read_bytes())["payload"]))
    digest = payload["predicate"]["data"]["sha256"]
    good = small(path, "--key", GOLDEN / "key.pub", "--data-sha256", digest, state=tmp_path)
    assert good.returncode == 0
    assert f"about the data {digest[:16]}" in good.stdout
    other = small(path, "--key", GOLDEN / "key.pub", "--data-sha256", "0" * 64, state=tmp_path)
    assert other.returncode == 1
    assert "about other data" in other.stdout
