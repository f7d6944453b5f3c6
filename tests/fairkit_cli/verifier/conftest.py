from __future__ import annotations

import base64
import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.fairkit_cli.verifier.browser import Browser, chromium

from fairkit_cli.verifier.bundle import page
from fairkit_registry import conformance


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


@pytest.fixture
def case(tmp_path):
    """Write the files of a case of the conformance suite: certificate, keys, revocations."""

    def write(name: str) -> dict[str, object]:
        one = next(each for each in conformance.cases([name]) if each.name == name)
        files: dict[str, object] = {"certificate": tmp_path / "certificate.json"}
        (tmp_path / "certificate.json").write_bytes(base64.b64decode(one.given["file"]))
        keys = []
        for place, pem in enumerate(one.given["keys"]):
            path = tmp_path / f"{place}.pub"
            path.write_text(pem)
            keys.append(path)
        files["keys"] = keys
        lists = []
        for place, text in enumerate(one.given.get("revocations", ())):
            path = tmp_path / f"list-{place}.json"
            path.write_bytes(base64.b64decode(text))
            lists.append(path)
        files["revocations"] = lists
        roots = [tmp_path / f"root-{place}.pem" for place, _ in enumerate(one.given.get("timestamp_roots", ()))]
        for path, pem in zip(roots, one.given.get("timestamp_roots", ()), strict=True):
            path.write_text(pem)
        files["roots"] = roots
        return files

    return write


@pytest.fixture
def resigned(tmp_path):
    """Sign a changed copy of the suite's honest statement with a fresh key; return its file and the key's."""
    from fairkit_registry.evidence import dsse, signers
    from fairkit_registry.jsonio import canonical

    def make(edit) -> dict[str, object]:
        (one,) = conformance.cases(["envelope/ed25519"])
        statement = json.loads(dsse.Envelope.from_bytes(base64.b64decode(one.given["file"])).payload)
        edit(statement)
        if not (tmp_path / "k").exists():
            signers.new_key_pair(tmp_path / "k")
        envelope = dsse.sign(
            canonical(statement), "application/vnd.in-toto+json", [signers.load_secret(tmp_path / "k")]
        )
        (tmp_path / "made.json").write_bytes(envelope.to_bytes())
        return {"certificate": tmp_path / "made.json", "keys": tmp_path / "k.pub", "revocations": []}

    return make
