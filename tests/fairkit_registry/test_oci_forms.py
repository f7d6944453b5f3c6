"""OCI registries: images, mounts, the referrers API, an own CA, bills of materials and signatures of models."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import ssl
import tarfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairkit_cli.main import app
from fairkit_registry.errors import ArchiveError, RegistryError
from fairkit_registry.evidence import dsse, oms, signers
from fairkit_registry.evidence.bundles import BUNDLE
from fairkit_registry.exchange import archive, fetching, images, pushing, remote
from fairkit_registry.oci import address
from fairkit_registry.oci.client import INDEX, Client
from fairkit_registry.policies import AliasPolicy
from fairkit_registry.store.registry import Registry

pytest.importorskip("httpx", reason="httpx is not installed (extra exchange)")
_spec = importlib.util.spec_from_file_location("oci_server", Path(__file__).with_name("oci_server.py"))
oci_server = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(oci_server)


@pytest.fixture
def server():
    found = oci_server.OciServer()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Nobody's logins, and a memory of this test's own."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def place(server):
    return address.parse(f"oci+http://{server.host}/team/credit:3")


@pytest.fixture
def credit(registry, model, certify, signer):
    registry.add("credit", model(), certificates=[certify(model())], tags=["pilot"])
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,)))
    return registry


@pytest.fixture
def there(tmp_path):
    with Registry(tmp_path / "there", create=True) as store:
        yield store


def test_a_registry_with_the_referrers_api_needs_no_tag(credit, there, place, server, certify, model, signer):
    pushing.push(credit, "credit@1", place, bom=True)
    pushing.attach(place, [certify(model(), verdict="fail"), certify(model(), verdict="inconclusive")])
    assert not [path for _, path in server.seen if "/manifests/sha256-" in path]
    found = remote.look(place)  # over two pages
    assert len(found.certificates) == 3
    assert any("after=" in path for _, path in server.seen)
    assert len(remote.pull(there, place, trusted=[signer.public]).version.certificates) == 3
    server.seen.clear()
    assert pushing.push(credit, "credit@1", place, bom=True).sent == 0


def test_bytes_of_another_repository_are_mounted_and_not_sent(credit, place, server, signer):
    pushing.push(credit, "credit@1", place)
    size = credit.version("credit@1").size
    second = replace(place, repository="other/credit")
    done = pushing.push(credit, "credit@1", second, mount=place.repository)
    assert any("mount=sha256" in path and "from=team" in path for _, path in server.seen)
    assert not [path for method, path in server.seen if method == "PATCH" and "/other/" in path]
    assert done.sent < size + 5_000
    assert remote.look(second).trusted([signer.public])[0]
    # a repository that has nothing of it: the bytes are sent
    third = replace(place, repository="third/credit")
    pushing.push(credit, "credit@1", third, mount="nobody/nothing")
    assert remote.look(third).trusted([signer.public])[0]


def test_an_image_carries_the_model_where_kubernetes_looks(credit, there, place, signer, tmp_path):
    done = pushing.push(credit, "credit@1", place, form="image")
    assert pushing.push(credit, "credit@1", place, form="image") == replace(done, sent=0)
    version = credit.version("credit@1")
    with Client(place) as client:
        top = client.manifest("3", accept=(INDEX,))
        assert [one["platform"]["architecture"] for one in top.content["manifests"]] == ["amd64", "arm64"]
        for entry in top.content["manifests"]:
            manifest = client.manifest(entry["digest"]).content
            (layer,) = manifest["layers"]
            described = json.loads(client.small(manifest["config"], 10_000))
            assert described["rootfs"]["diff_ids"] == [layer["digest"]]
            assert described["architecture"] == entry["platform"]["architecture"]
            packed = b"".join(client.blob(layer["digest"], layer["size"]))
            assert len(client.referrers(entry["digest"])) == 1  # the evidence of whoever resolves the platform first
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert tar.getnames() == ["models/model.onnx"]
        content = tar.extractfile("models/model.onnx").read()
    assert hashlib.sha256(content).hexdigest() == version.model
    found = remote.look(place)
    assert (found.model, len(found.trusted([signer.public])[0])) == (version.model, 1)
    pulled = remote.pull(there, place, trusted=[signer.public]).version
    assert (pulled.model, pulled.tags, len(pulled.certificates)) == (version.model, ("pilot",), 1)
    assert hashlib.sha256(fetching.fetch(place, tmp_path / "cache").read_bytes()).hexdigest() == version.model


def tar_of(*members):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for name, kind, content in members:
            entry = tarfile.TarInfo(name)
            entry.type, entry.size = kind, len(content)
            entry.linkname = "/etc/passwd" if kind == tarfile.SYMTYPE else ""
            tar.addfile(entry, io.BytesIO(content))
    return held.getvalue()


def sparse(size: int) -> bytes:
    """A layer of a few blocks whose model is `size` zeros, in the form of GNU tar."""
    entry = bytearray(tarfile.TarInfo("models/model.onnx").tobuf(tarfile.GNU_FORMAT))
    entry[156:157] = tarfile.GNUTYPE_SPARSE
    entry[386:410] = b"%011o\0%011o\0" % (0, 0)
    entry[483:495] = b"%011o\0" % size
    entry[148:156] = b" " * 8
    entry[148:156] = b"%06o\0 " % sum(entry)
    return bytes(entry) + bytes(1024)


@pytest.mark.long
@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (sparse(8 << 20), "is no file"),
        (tar_of(("models/model.onnx", tarfile.REGTYPE, b"other")), "the manifest names"),
        (tar_of(("models/other.onnx", tarfile.REGTYPE, b"x")), "has no models/model.onnx"),
        (tar_of(("models/model.onnx", tarfile.SYMTYPE, b"")), "is no file"),
        (tar_of(*[("models/model.onnx", tarfile.REGTYPE, b"x")] * 2), "stands there twice"),
        (tar_of(*[("x", tarfile.REGTYPE, b"")] * 200), "more than 100 files"),
        (b"no tar at all" * 100, "no tar file"),
    ],
)
def test_an_image_with_something_else_in_it_is_refused(credit, there, place, layer, said):
    version = credit.version("credit@1")
    with Client(place) as client:
        described = client.push_bytes(layer)
        told = client.push_bytes(images.config(version, described["digest"], "amd64"))
        client.push_manifest(images.manifest(version, told, described), "3")
    with pytest.raises(ArchiveError, match=said):
        remote.pull(there, place)
    assert there.models() == []
    assert [path for path in (there.path / "blobs").rglob("*") if path.is_file()] == []


def test_signatures_of_models_and_bills_travel_beside_certificates(
    credit, there, place, model, certify, tmp_path, signer
):
    signers.new_key_pair(tmp_path / "k", kind="p256")
    pushing.push(credit, "credit@1", place, bom=True)
    digest = credit.version("credit@1").model
    signature, other, bundle = (tmp_path / name for name in ("m.sig", "o.sig", "c.json"))
    secret = signers.load_secret(tmp_path / "k")
    signature.write_bytes(oms.sign_model("m.onnx", digest, secret))
    other.write_bytes(oms.sign_model("m.onnx", "0" * 64, secret))
    bundle.write_bytes(dsse.Envelope.from_bytes(certify(model(), verdict="fail").read_bytes()).to_bundle())
    pushing.attach(place, [signature, bundle])
    with pytest.raises(Exception, match="not a fairness certificate"):
        pushing.attach(place, [other])
    with Client(place) as client:
        listed = client.referrers(client.manifest("3").digest)
    kinds = sorted(one["artifactType"] for one in listed)
    assert kinds == sorted([archive.CERTIFICATE, archive.BOM, BUNDLE, BUNDLE])
    good, refused = remote.look(place).trusted([signer.public])
    assert (len(good), refused) == (2, [])  # the model's signature is no certificate, and no strange one either
    pulled = remote.pull(there, place, trusted=[signer.public]).version
    assert len(pulled.certificates) == 2
    archive.export(there, ["credit@1"], tmp_path / "all.tar")  # and a bundle is archived as one
    from fairkit_registry.exchange.importing import import_archive

    with Registry(tmp_path / "third", create=True) as third:
        (arrived,) = import_archive(third, tmp_path / "all.tar", trusted=[signer.public])
        assert sorted(arrived.version.certificates) == sorted(pulled.certificates)


def test_encryption_by_an_own_authority(credit, place, tmp_path, monkeypatch, signer):
    """The registry's certificate is by a CA of the company's: `SSL_CERT_FILE` names it, and nothing else is taken."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    import ipaddress

    own = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (tmp_path / "ca.pem").write_bytes(own.public_bytes(pem))
    (tmp_path / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
    server = oci_server.OciServer(tls=context)
    server.server.handle_error = lambda *_: None
    where = address.parse(f"oci://{server.host}/team/credit:3")
    try:
        with pytest.raises(RegistryError, match="cannot reach the registry"):
            pushing.push(credit, "credit@1", where)
        assert server.blobs == {}
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        pushing.push(credit, "credit@1", where)
        assert remote.look(where).trusted([signer.public])[0]
    finally:
        server.close()


def test_by_command(credit, place, signer, tmp_path):
    def run(*arguments):
        return CliRunner().invoke(app, [str(one) for one in arguments])

    pushed = run("registry", "push", "credit@1", place, "--as", "image", "--bom", "--registry", credit.path)
    assert pushed.exit_code == 0, pushed.stderr
    assert run("verify", place, "--key", signer.pub).exit_code == 0
    assert run("registry", "push", "credit@1", place, "--as", "docker", "--registry", credit.path).exit_code == 2
