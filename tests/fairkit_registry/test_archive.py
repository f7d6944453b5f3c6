from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairkit.errors import FairkitError
from fairkit_registry.errors import ArchiveError, CertificateError, RegistryError, VerificationError
from fairkit_registry.exchange import describe as importing
from fairkit_registry.exchange import layout as archive
from fairkit_registry.exchange.describe import import_archive, look_into
from fairkit_registry.promotion.run import promote
from fairkit_registry.store.index import AliasPolicy
from fairkit_registry.store.registry import Registry, check


@pytest.fixture
def exported(registry, model, certify, signer, tmp_path):
    registry.add("credit", model(1), certificates=[certify(model(1))], tags=["a"], notes="first")
    registry.add("credit", model(2), certificates=[certify(model(2))], parent="credit@1")
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,)))
    assert promote(registry, "credit@2", "production").verdict == "pass"
    archive.export(registry, ["credit"], tmp_path / "a.tar")
    return tmp_path / "a.tar"


@pytest.fixture
def other(tmp_path):
    with Registry(tmp_path / "other", create=True) as store:
        yield store


def read(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}


def write(path: Path, files, **changes) -> Path:
    """Write a tar of names and bytes; changes are attributes of a member by name."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in files.items() if isinstance(files, dict) else files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            for key, value in changes.get("of", {}).get(name, {}).items():
                setattr(entry, key, value)
            tar.addfile(entry, io.BytesIO(content))
    return path


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_an_export_comes_back_with_everything(exported, registry, other, signer):
    found = import_archive(other, exported, trusted=[signer.public])
    assert [one.origin for one in found] == ["credit@1", "credit@2"]
    assert all(one.new and one.verdict == "pass" for one in found)
    assert found[0].carried_keys == (signer.public.keyid,)
    old, new = registry.versions("credit"), other.versions("credit")
    for before, after in zip(old, new, strict=True):
        for field in ("name", "version", "model", "filename", "parent", "tags", "notes", "certificates"):
            assert getattr(before, field) == getattr(after, field)
    assert new[0].origin.startswith("credit@2 sha256:")
    assert check(other).problems == ()
    assert [event.action for event in other.log()] == ["import", "import"]


def test_keys_in_an_archive_are_not_trusted(exported, other, signer, stranger):
    with pytest.raises(VerificationError, match="not signed by a key that you trust"):
        import_archive(other, exported, trusted=[stranger.public])
    assert other.models() == []
    found = import_archive(other, exported)
    assert [one.verdict for one in found] == [None, None]
    assert promote(other, "credit@2", "production").verdict == "fail"
    assert other.aliases() == []


def test_importing_twice_adds_nothing_but_new_certificates(exported, registry, other, certify, model, tmp_path):
    import_archive(other, exported)
    assert [one.new for one in import_archive(other, exported)] == [False, False]
    assert other.models()[0]["versions"] == 2
    registry.attach("credit@2", [certify(model(2), verdict="fail")])
    archive.export(registry, ["credit"], tmp_path / "b.tar")
    assert [one.new for one in import_archive(other, tmp_path / "b.tar")] == [False, True]
    assert len(other.version("credit@2").certificates) == 2
    assert check(other).problems == ()


def test_versions_get_the_next_numbers_and_another_name(exported, registry, other, model, tmp_path):
    other.add("loans", model(9))
    found = import_archive(other, exported, name="loans")
    assert [one.version.reference for one in found] == ["loans@2", "loans@3"]
    assert found[1].version.parent == "loans@2"
    registry.add("second", model(3))
    archive.export(registry, ["credit", "second"], tmp_path / "b.tar")
    with pytest.raises(ArchiveError, match="holds several"):
        import_archive(other, tmp_path / "b.tar", name="x")


def test_exports_are_the_same_bytes_each_time(exported, registry, tmp_path):
    archive.export(registry, ["credit"], tmp_path / "b.tar")
    assert (tmp_path / "b.tar").read_bytes() == exported.read_bytes()


def test_one_version_is_exported_by_alias_and_an_unknown_one_leaves_no_file(exported, registry, tmp_path):
    done = archive.export(registry, ["credit@production", "credit@2"], tmp_path / "b.tar")
    assert [version.reference for version in done] == ["credit@2"]
    with pytest.raises(RegistryError):
        archive.export(registry, ["nobody"], tmp_path / "c.tar")
    assert not (tmp_path / "c.tar").exists()


def test_a_damaged_blob_is_not_exported(exported, registry, tmp_path):
    path = registry.blobs.path(registry.version("credit@1").model)
    path.chmod(0o644)
    path.write_bytes(b"x")
    with pytest.raises(RegistryError, match="was changed"):
        archive.export(registry, ["credit"], tmp_path / "b.tar")
    assert {path.name for path in tmp_path.iterdir() if path.suffix in (".tar", ".tmp")} == {"a.tar"}


def test_the_archive_is_an_oci_image_layout(exported):
    files = read(exported)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(files["index.json"])
    assert index["schemaVersion"] == 2
    assert [entry["annotations"][archive.REF] for entry in index["manifests"]] == ["credit-1", "credit-2"]
    assert index["manifests"][1]["annotations"]["dev.fairkit.aliases"] == "production"
    seen = {"oci-layout", "index.json"}

    def follow(descriptor):
        algorithm, digest = descriptor["digest"].split(":")
        content = files[f"blobs/{algorithm}/{digest}"]
        assert hashlib.sha256(content).hexdigest() == digest
        assert len(content) == descriptor["size"]
        seen.add(f"blobs/{algorithm}/{digest}")
        return content

    for entry in index["manifests"]:
        manifest = json.loads(follow(entry))
        assert manifest["mediaType"] == entry["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
        follow(manifest["config"])
        kinds = [layer["mediaType"] for layer in manifest["layers"]]
        assert kinds == [archive.MODEL, archive.CERTIFICATE, archive.PUBLIC_KEY]
        for layer in manifest["layers"]:
            follow(layer)
    assert seen == set(files)


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="needs the skopeo command")
def test_skopeo_copies_a_version(exported, tmp_path):
    subprocess.run(
        ["skopeo", "--insecure-policy", "copy", f"oci-archive:{exported}:credit-2", f"oci:{tmp_path}/copy:credit-2"],
        check=True,
        capture_output=True,
    )
    blobs = {path.name for path in (tmp_path / "copy" / "blobs" / "sha256").iterdir()}
    model = hashlib.sha256((tmp_path / "model-2-1.onnx").read_bytes()).hexdigest()
    assert model in blobs


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_another_person_verifies_with_tar_and_openssl_alone(exported, signer, tmp_path):
    place = tmp_path / "elsewhere"
    place.mkdir()
    subprocess.run(["tar", "xf", exported, "-C", place], check=True)
    index = json.loads((place / "index.json").read_text())

    def blob(descriptor):
        return place / "blobs" / descriptor["digest"].replace(":", "/")

    manifest = json.loads(blob(index["manifests"][1]).read_text())
    layers = {layer["mediaType"]: blob(layer) for layer in manifest["layers"]}
    envelope = json.loads(layers[archive.CERTIFICATE].read_text())
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"]
    (place / "pae").write_bytes(f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload)
    (place / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    done = subprocess.run(
        ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", signer.pub, "-rawin", "-in", "pae", "-sigfile", "sig"],
        cwd=place,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "Verified Successfully" in done.stdout
    digest = subprocess.run(["sha256sum", layers[archive.MODEL]], check=True, capture_output=True, text=True).stdout
    assert json.loads(payload)["subject"][0]["digest"]["sha256"] == digest.split()[0]


def test_an_archive_is_verified_without_a_registry(exported, signer, stranger, tmp_path):
    scratch = tmp_path / "scratch"
    found = look_into(exported, [signer.public], scratch)
    assert [one.verdict for one in found] == ["pass", "pass"]
    assert list((scratch / "tmp").iterdir()) == []
    with pytest.raises(VerificationError):
        look_into(exported, [stranger.public], scratch)


def test_every_flipped_byte_of_a_blob_is_refused(exported, other):
    raw = bytearray(exported.read_bytes())
    with tarfile.open(exported) as tar:
        spans = [(entry.offset_data, entry.size) for entry in tar if entry.name.startswith("blobs/")]
    for start, size in spans:
        changed = bytearray(raw)
        changed[start + size // 2] ^= 1
        exported.write_bytes(bytes(changed))
        with pytest.raises(ArchiveError, match="does not have this digest"):
            import_archive(other, exported)
    assert other.models() == []
    assert list(other.blobs.temporary.iterdir()) == []


def hostile(name):
    return {
        "climb": ({"../evil": b"x"}, {}, "does not belong"),
        "absolute": ({"/tmp/evil": b"x"}, {}, "does not belong"),
        "climb inside": ({"blobs/sha256/../../../evil": b"x"}, {}, "does not belong"),
        "short digest": ({"blobs/sha256/abc": b"x"}, {}, "does not belong"),
        "symlink": ({"index.json": b""}, {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "is a link"),
        "hard link": ({"index.json": b""}, {"type": tarfile.LNKTYPE, "linkname": "oci-layout"}, "is a link"),
        "device": ({"index.json": b""}, {"type": tarfile.CHRTYPE}, "no regular file"),
        "fifo": ({"index.json": b""}, {"type": tarfile.FIFOTYPE}, "no regular file"),
        "folder": ({"blobs/evil": b""}, {"type": tarfile.DIRTYPE}, "no regular file"),
        "linked folder": ({"blobs": b""}, {"type": tarfile.SYMTYPE, "linkname": "/tmp"}, "is a link"),
        "wrong digest": ({f"blobs/sha256/{'0' * 64}": b"x"}, {}, "does not have this digest"),
        "empty": ({}, {}, "no OCI image layout"),
        "no manifests": ({"oci-layout": b"{}", "index.json": b'{"manifests": []}'}, {}, "holds no models"),
        "no json": ({"oci-layout": b"{}", "index.json": b"\xff"}, {}, "cannot be read"),
        "odd manifest": ({"oci-layout": b"{}", "index.json": b'{"manifests": [3]}'}, {}, "has no SHA-256 digest"),
        "path as digest": (
            {"oci-layout": b"{}", "index.json": b'{"manifests": [{"digest": "sha256:../../etc/passwd"}]}'},
            {},
            "has no SHA-256 digest",
        ),
        "missing blob": (
            {"oci-layout": b"{}", "index.json": b'{"manifests": [{"digest": "sha256:%s"}]}' % (b"0" * 64)},
            {},
            "incomplete",
        ),
        "large document": ({"index.json": b" " * (9 << 20)}, {}, "at most"),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "climb",
        "absolute",
        "climb inside",
        "short digest",
        "symlink",
        "hard link",
        "device",
        "fifo",
        "folder",
        "linked folder",
        "wrong digest",
        "empty",
        "no manifests",
        "no json",
        "odd manifest",
        "path as digest",
        "missing blob",
        "large document",
    ],
)
def test_hostile_archives_are_refused_and_nothing_is_written(other, tmp_path, name):
    files, change, message = hostile(name)
    path = write(tmp_path / "evil.tar", files, of=dict.fromkeys(files, change))
    before = everything_below(tmp_path)
    with pytest.raises(ArchiveError, match=message):
        import_archive(other, path)
    assert everything_below(tmp_path) - before <= {"other/blobs/tmp"}
    assert check(other).notes == ()


def test_doubles_bombs_and_compression_are_refused(exported, other, tmp_path):
    files = list(read(exported).items())
    with pytest.raises(ArchiveError, match="twice"):
        import_archive(other, write(tmp_path / "b.tar", [*files, ("index.json", b"{}")]))
    with pytest.raises(ArchiveError, match="more than 1000 bytes"):
        import_archive(other, exported, most_bytes=1000)
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as tar:
        tar.add(exported, "index.json")
    with pytest.raises(ArchiveError, match="is compressed"):
        import_archive(other, tmp_path / "c.tar.gz")
    with pytest.raises(ArchiveError, match="cannot read"):
        import_archive(other, tmp_path / "missing.tar")


def header(name: bytes, size: bytes, kind: bytes = b"0") -> bytes:
    block = bytearray(512)
    block[0 : len(name)] = name
    block[100:108] = b"0000644\0"
    block[124 : 124 + len(size)] = size
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(header(b"index.json", b"77777777777\0"), id="declares 8 GB and has none"),
        pytest.param(header(b"index.json", b"\xff" * 12), id="negative size"),
        pytest.param(header(b"x", b"77777777777\0", b"x"), id="header of 8 GB"),
        pytest.param(header(b"x", b"\xff" * 12, b"x"), id="header of negative size"),
        pytest.param(header(b"x", b"00000000005\0", b"L") * 2000, id="headers about headers"),
        pytest.param(header(b"index.json", b"00001000000\0", b"S"), id="sparse file"),
    ],
)
def test_lies_in_tar_headers_are_refused_at_once(other, tmp_path, head):
    (tmp_path / "evil.tar").write_bytes(head + b"\0" * 2048)
    with pytest.raises(ArchiveError):
        import_archive(other, tmp_path / "evil.tar")


def test_pax_headers_cannot_smuggle_a_path(other, tmp_path):
    with tarfile.open(tmp_path / "evil.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo("index.json")
        entry.pax_headers = {"path": "../../evil"}
        tar.addfile(entry, io.BytesIO())
    with pytest.raises(ArchiveError, match="does not belong"):
        import_archive(other, tmp_path / "evil.tar")


def test_archives_repacked_with_tar_are_read(exported, other, tmp_path):
    place = tmp_path / "unpacked"
    place.mkdir()
    subprocess.run(["tar", "xf", exported, "-C", place], check=True)
    subprocess.run(["tar", "cf", tmp_path / "again.tar", "-C", place, "."], check=True)
    assert len(import_archive(other, tmp_path / "again.tar")) == 2


def rebuild(files: dict[str, bytes], change) -> dict[str, bytes]:
    """Change the last manifest and its record, and fix all digests: what a careful forger would do."""
    index = json.loads(files["index.json"])
    entry = index["manifests"][-1]
    manifest = json.loads(files["blobs/sha256/" + entry["digest"][7:]])
    config = json.loads(files["blobs/sha256/" + manifest["config"]["digest"][7:]])
    files = dict(files)
    change(files, manifest, config)

    def put(value, descriptor):
        raw = json.dumps(value).encode()
        digest = hashlib.sha256(raw).hexdigest()
        files[f"blobs/sha256/{digest}"] = raw
        descriptor.update(digest=f"sha256:{digest}", size=len(raw))

    put(config, manifest["config"])
    put(manifest, entry)
    return files | {"index.json": json.dumps(index).encode()}


def swap_model(files, manifest, config):
    raw = b"\x08\x08" + files["blobs/sha256/" + manifest["layers"][0]["digest"][7:]]
    digest = hashlib.sha256(raw).hexdigest()
    files[f"blobs/sha256/{digest}"] = raw
    manifest["layers"][0].update(digest=f"sha256:{digest}", size=len(raw))


def not_onnx(files, manifest, config):
    digest = hashlib.sha256(b"hello").hexdigest()
    files[f"blobs/sha256/{digest}"] = b"hello"
    manifest["layers"][0].update(digest=f"sha256:{digest}", size=5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swap_model, "about another model"),
        (not_onnx, "not an ONNX file"),
        (lambda f, m, c: c.update(name="../../evil"), "version record is not understood"),
        (lambda f, m, c: c.update(name=3), "no usable 'name'"),
        (lambda f, m, c: c.update(version=-1), "no usable 'version'"),
        (lambda f, m, c: c.update(tags=7), "not understood"),
        (lambda f, m, c: c.update(tags=[7]), "no usable 'tag'"),
        (lambda f, m, c: c.update(parent="a/b"), "not understood"),
        (lambda f, m, c: c.update(notes="x" * 200_000), "no usable 'notes'"),
        (lambda f, m, c: m.update(layers=[]), "exactly one ONNX"),
        (lambda f, m, c: m.update(layers="x"), "no layers"),
        (lambda f, m, c: m["layers"].append(m["layers"][0]), "exactly one ONNX"),
        (lambda f, m, c: m["layers"][0].update(mediaType="text/html"), "layer is of type"),
        (lambda f, m, c: m["layers"][0].update(size=3), "another size"),
        (lambda f, m, c: m["config"].update(mediaType="text/html"), "is of type"),
    ],
)
def test_a_consistent_forgery_is_refused_whole(exported, other, tmp_path, change, message):
    path = write(tmp_path / "b.tar", rebuild(read(exported), change))
    with pytest.raises((ArchiveError, CertificateError, RegistryError), match=message):
        import_archive(other, path)
    assert other.models() == []
    assert check(other).notes == ()


def test_a_version_without_certificates_has_nobody_to_vouch_for_it(exported, other, tmp_path, signer):
    def strip(files, manifest, config):
        manifest["layers"] = manifest["layers"][:1]

    path = write(tmp_path / "b.tar", rebuild(read(exported), strip))
    with pytest.raises(CertificateError, match="no key can vouch"):
        import_archive(other, path, trusted=[signer.public])
    assert len(import_archive(other, path)) == 2


@pytest.mark.long
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_damage_is_refused_or_harmless(exported, other, tmp_path, data):
    raw = bytearray(exported.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(raw) - 1))
        raw[where] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(raw))))
    path = tmp_path / "fuzz.tar"
    path.write_bytes(bytes(raw[:cut]))
    outside = {p for p in everything_below(tmp_path) if not p.startswith("other")}
    with suppress(FairkitError):
        import_archive(other, path, most_bytes=1 << 20)
    assert {p for p in everything_below(tmp_path) if not p.startswith("other")} == outside
    assert list(other.blobs.temporary.iterdir()) == []
    assert check(other).problems == ()


def test_limits_are_generous():
    assert importing.MOST_BYTES >= 1 << 34


def test_versions_with_the_same_file_come_together(registry, tmp_path, model):
    file = model(1)
    registry.add("credit", file)
    registry.add("credit", file)
    archive.export(registry, ["credit"], tmp_path / "a.tar")
    with Registry(tmp_path / "other", create=True) as other:
        found = import_archive(other, tmp_path / "a.tar")
        assert [one.version.reference for one in found] == ["credit@1", "credit@2"]
        assert check(other).problems == ()
