from __future__ import annotations

import gzip
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.fairkit_cli.verifier.browser import Browser, chromium

from fairkit_cli.verifier.bundle import page
from fairkit_registry.evidence import signed as dsse
from fairkit_registry.evidence import signers
from fairkit_registry.jsonio import canonical

GOLDEN = Path(__file__).parents[2] / "fairkit_registry" / "golden"


@pytest.fixture(scope="session")
def node():
    if shutil.which("node") is None:
        pytest.skip("node is not installed: apt-get install nodejs")
    return shutil.which("node")


@pytest.fixture(scope="session")
def verify_html(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "verify.html"
    path.write_text(page(), "utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if chromium() is None:
        pytest.skip("no chromium on PATH: apt-get install chromium")
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture(scope="session")
def axe() -> str:
    found = find_spec("axe_core_python")
    if found is None or not found.submodule_search_locations:
        pytest.skip("axe-core is not installed: pip install axe-core-python")
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text("utf-8")


@pytest.fixture(scope="session")
def signer(tmp_path_factory):
    """A key of each kind, and how a statement is signed with them."""
    folder = tmp_path_factory.mktemp("keys")
    for kind in ("ed25519", "p256"):
        signers.new_key_pair(folder / kind, kind=kind)
    secrets = {kind: signers.load_secret(folder / kind) for kind in ("ed25519", "p256")}

    def sign(statement: object, kind: str = "ed25519", payload_type: str = "application/vnd.in-toto+json") -> bytes:
        payload = statement if isinstance(statement, bytes) else canonical(statement)
        return dsse.sign(payload, payload_type, [secrets[kind]]).to_bytes()

    return SimpleNamespace(sign=sign, secrets=secrets, pub=folder / "ed25519.pub", p256=folder / "p256.pub")


def golden(name: str = "certificate") -> dict[str, object]:
    """The statement of a certificate that was made long ago."""
    raw = gzip.decompress((GOLDEN / f"{name}.json.gz").read_bytes())
    statement: dict[str, object] = json.loads(dsse.Envelope.from_bytes(raw).payload)
    return statement


@pytest.fixture
def resigned(tmp_path, signer):
    """Sign a changed copy of a golden statement; return its file and the key's."""

    def make(edit=lambda statement: None, name: str = "certificate", kind: str = "ed25519") -> dict[str, Path]:
        statement = golden(name)
        edit(statement)
        (tmp_path / "made.json").write_bytes(signer.sign(statement, kind))
        return {"certificate": tmp_path / "made.json", "keys": signer.pub if kind == "ed25519" else signer.p256}

    return make
