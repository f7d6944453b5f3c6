"""Signatures of models that OpenSSF Model Signing takes."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from fairkit_cli.main import app
from fairkit_registry.errors import KeyFileError
from fairkit_registry.evidence import dsse, oms, signers
from fairkit_registry.jsonio import canonical


@pytest.fixture
def signed(registry, model, tmp_path, monkeypatch):
    """A model, its signature as the command writes it, and the public key."""
    monkeypatch.chdir(tmp_path)
    registry.add("credit", model())
    signers.new_key_pair(tmp_path / "k", kind="p256")
    command = ("registry", "export", "credit@1", "--oms", "k", "--output", "model.sig", "--registry", registry.path)
    done = CliRunner().invoke(app, [str(one) for one in command])
    assert done.exit_code == 0, done.stderr
    return model(), tmp_path / "model.sig", tmp_path / "k.pub"


def test_the_signature_is_over_the_files_digest(signed, registry):
    from fairkit_registry.evidence.keys import load_public

    bundle = json.loads(signed[1].read_bytes())
    envelope = dsse.Envelope.from_bytes(canonical(bundle["dsseEnvelope"]))
    assert dsse.signers(envelope, [load_public(signed[2])])
    said = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    assert said["predicateType"] == oms.TYPE
    assert said["predicate"]["resources"] == [
        {"name": ".", "algorithm": "sha256", "digest": registry.version("credit@1").model}
    ]


def test_model_signing_accepts_it_and_refuses_a_changed_file(signed):
    program = shutil.which("model_signing")
    if program is None:
        pytest.skip("model_signing is not installed (pip install model-signing pyopenssl)")
    path, signature, public = signed
    check = [program, "verify", "key", str(path), "--signature", str(signature), "--public_key", str(public)]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    assert subprocess.run(check, capture_output=True, check=False).returncode != 0


def test_what_model_signing_does_not_take_is_one_message(registry, model, signer, tmp_path, monkeypatch):
    with pytest.raises(KeyFileError, match=r"takes no ed25519 key.*--type p256"):
        oms.sign_model("m.onnx", "0" * 64, signer.secret)
    monkeypatch.chdir(tmp_path)
    registry.add("credit", model())
    where = ("--output", "model.sig", "--registry", str(registry.path))
    for wrong in (
        ("credit@1", "--oms", signer.path),
        ("credit@1", "credit@1", "--oms", signer.path),
        ("credit@1", "--oms", signer.path, "--key", signer.pub),
        ("credit@1", "--insecure-key"),
    ):
        refused = CliRunner().invoke(app, ["registry", "export", *map(str, wrong), *where])
        assert refused.exit_code == 2, wrong
        assert not (tmp_path / "model.sig").exists()
