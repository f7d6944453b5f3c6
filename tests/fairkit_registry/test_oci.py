"""An archive through a real OCI registry, carried by skopeo: what comes back is checked as from a stranger."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from tests.commands import invoke

from fairkit_registry.errors import ArchiveError, VerificationError
from fairkit_registry.exchange.describe import import_archive
from fairkit_registry.exchange.layout import export
from fairkit_registry.store.registry import Registry

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A docker-registry on a port that the system chooses, and the folder of its blobs."""
    if shutil.which("docker-registry") is None or shutil.which("skopeo") is None:
        pytest.skip("needs docker-registry and skopeo: apt-get install docker-registry skopeo")
    folder = tmp_path_factory.mktemp("oci")
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": "127.0.0.1:0", "secret": "for tests"},
    }
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    process = subprocess.Popen(
        ["docker-registry", "serve", folder / "config.yml"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    host = next(found[1] for line in process.stderr if (found := re.search(r"listening on (127\.0\.0\.1:\d+)", line)))
    threading.Thread(target=process.stderr.read, daemon=True).start()
    yield host, folder / "data"
    process.kill()
    process.wait()
    process.stderr.close()


def carry(source: str, target: str) -> None:
    plain = [
        option
        for side, at in (("src", source), ("dest", target))
        if at.startswith("docker:")
        for option in (f"--{side}-tls-verify=false",)
    ]
    subprocess.run(["skopeo", "--insecure-policy", "copy", *plain, source, target], check=True, capture_output=True)


@pytest.fixture
def sent(registry, model, certify, signer, server, tmp_path):
    """Two versions of a model, the second of which is in the registry."""
    registry.add("credit", model(1), certificates=[certify(model(1))])
    registry.add("credit", model(2), certificates=[certify(model(2))], parent="credit@1", notes="second")
    export(registry, ["credit"], tmp_path / "credit.tar", keys=[signer.public])
    address = f"docker://{server[0]}/team/credit:2"
    carry(f"oci-archive:{tmp_path / 'credit.tar'}:credit-2", address)
    return address


def test_a_version_goes_there_and_comes_back(sent, registry, signer, stranger, tmp_path):
    carry(sent, f"oci-archive:{tmp_path / 'back.tar'}")
    with Registry(tmp_path / "there", create=True) as there:
        with pytest.raises(VerificationError, match="not signed by a key that you trust"):
            import_archive(there, tmp_path / "back.tar", trusted=[stranger.public])
        assert there.models() == []
        (arrived,) = import_archive(there, tmp_path / "back.tar", trusted=[signer.public])
        assert arrived.verdict == "pass"
        original = registry.version("credit@2")
        assert arrived.version.model == original.model == there.version("credit@1").model
        assert arrived.version.certificates == original.certificates
        assert arrived.version.notes == "second"
        (again,) = import_archive(there, tmp_path / "back.tar", trusted=[signer.public])
        assert not again.new


def test_the_commands_of_the_how_to(sent, signer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    carry(sent, "oci-archive:back.tar")
    run = lambda *words: invoke("registry", *words)  # noqa: E731
    assert run("verify", "back.tar", "--key", signer.pub).exit_code == 0
    done = run("import", "back.tar", "--key", signer.pub, "--registry", "there")
    assert done.exit_code == 0, done.output
    assert "signed by a trusted key" in done.output
    refused = run("verify", "oci://example.org/team/credit:2", "--key", signer.pub)
    assert refused.exit_code == 2
    assert "skopeo copy" in refused.stderr


def test_a_flipped_byte_on_the_way_leaves_nothing(sent, signer, tmp_path):
    carry(sent, f"oci:{tmp_path / 'layout'}:credit-2")
    blobs = sorted((tmp_path / "layout" / "blobs" / "sha256").iterdir())
    for number, blob in enumerate(blobs):
        raw = blob.read_bytes()
        blob.chmod(0o644)
        blob.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        archive = tmp_path / f"bent-{number}.tar"
        subprocess.run(["tar", "cf", archive, "-C", tmp_path / "layout", "."], check=True)
        with Registry(tmp_path / "there", create=True) as there:
            with pytest.raises(ArchiveError, match="does not have this digest"):
                import_archive(there, archive, trusted=[signer.public])
            assert there.models() == []
        blob.write_bytes(raw)


def test_an_image_that_is_none_of_ours_is_refused(server, signer, tmp_path):
    """What anybody may have put under the same tag."""
    layout = tmp_path / "image"
    (layout / "blobs" / "sha256").mkdir(parents=True)
    import hashlib

    def blob(content: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        Path(layout / "blobs" / "sha256" / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    config = blob(
        b'{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}',
        "application/vnd.oci.image.config.v1+json",
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [],
    }
    entry = blob(json.dumps(manifest).encode(), manifest["mediaType"])
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    carry(f"oci:{layout}", f"docker://{server[0]}/team/other:1")
    carry(f"docker://{server[0]}/team/other:1", f"oci-archive:{tmp_path / 'other.tar'}")
    with Registry(tmp_path / "there", create=True) as there, pytest.raises(ArchiveError, match="version record"):
        import_archive(there, tmp_path / "other.tar", trusted=[signer.public])
