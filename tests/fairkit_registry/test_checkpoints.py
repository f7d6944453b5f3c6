"""Signed checkpoints of the log and proofs about it, against their definitions, and attacks on the history."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fairkit_cli.main import app
from fairkit_registry import merkle
from fairkit_registry.errors import CertificateError, KeyFileError, TamperedError, VerificationError
from fairkit_registry.evidence import checkpoints, logproofs, signers
from fairkit_registry.evidence.keys import load_public
from fairkit_registry.store.registry import Registry


def defined(entries: list[bytes]) -> bytes:
    """The Merkle tree hash as RFC 6962, 2.1 writes it down."""
    if not entries:
        return hashlib.sha256(b"").digest()
    if len(entries) == 1:
        return hashlib.sha256(b"\0" + entries[0]).digest()
    middle = max(1 << n for n in range(20) if 1 << n < len(entries))
    return hashlib.sha256(b"\1" + defined(entries[:middle]) + defined(entries[middle:])).digest()


def entries_of(size: int) -> list[bytes]:
    return [bytes([n]) * 3 for n in range(size)]


def test_roots_are_those_of_the_definition():
    for size in range(70):
        assert merkle.root([merkle.leaf(one) for one in entries_of(size)]) == defined(entries_of(size))


def test_roots_are_those_of_the_published_vectors():
    """From the test data of Certificate Transparency (RFC 6962 reference)."""
    inputs = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    leaves = [merkle.leaf(bytes.fromhex(one)) for one in inputs]
    assert merkle.root(leaves[:1]).hex().startswith("6e340b9cffb37a989ca544e6bb780a2c")
    assert merkle.root(leaves).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


@given(st.integers(1, 40), st.data())
def test_a_proof_holds_for_its_entry_and_for_no_other(size, data):
    leaves = [merkle.leaf(one) for one in entries_of(size)]
    index = data.draw(st.integers(0, size - 1))
    proof, top = merkle.inclusion(leaves, index), merkle.root(leaves)
    assert merkle.included(leaves[index], index, size, proof, top)
    for other in range(size):
        if other != index:
            assert not merkle.included(leaves[other], index, size, proof, top)
            assert not merkle.included(leaves[index], other, size, proof, top)
    assert not merkle.included(leaves[index], index, size, [*proof, top], top)
    if proof:
        assert not merkle.included(leaves[index], index, size, proof[:-1], top)
    old = data.draw(st.integers(0, size))
    grown = merkle.consistency(leaves, old)
    before = merkle.root(leaves[:old])
    assert merkle.consistent(old, size, before, top, grown)
    assert not merkle.consistent(old, size, merkle.leaf(b"x"), top, grown)
    if old:  # every log goes on from an empty one
        assert not merkle.consistent(old, size, before, merkle.leaf(b"x"), grown)
    assert not merkle.consistent(old, size, before, top, [*grown, top])


def test_a_root_and_proofs_equal_those_of_another_library():
    pymerkle = pytest.importorskip("pymerkle", reason="pymerkle is not installed: an oracle")
    tree = pymerkle.InmemoryTree(algorithm="sha256")
    for one in entries_of(21):
        tree.append_entry(one)
    leaves = [merkle.leaf(one) for one in entries_of(21)]
    assert tree.get_root() == merkle.root(leaves)


@pytest.fixture
def log(registry, model, tmp_path, monkeypatch, signer):
    """A registry with some events, in the working folder's neighbour."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    registry.add("credit", model())
    registry.add("credit", model(2.0))
    return registry


def run(*arguments):
    return CliRunner().invoke(app, ["registry", *(str(one) for one in arguments)])


def sign(log, signer, name="head", *more):
    done = run("checkpoint", "--key", signer.path, "--output", name, "--registry", log.path, *more)
    assert done.exit_code == 0, done.stdout + done.stderr
    return Path(name)


def test_a_checkpoint_is_a_signed_note_as_the_specification_writes_it(log, signer):
    raw = sign(log, signer, "head", "--origin", "example.org/models").read_text("utf-8")
    origin, size, root, blank, line = raw.splitlines()
    assert (origin, size, blank) == ("example.org/models", "2", "")
    leaves = checkpoints.entries(log.digests())
    assert base64.b64decode(root) == defined([bytes.fromhex(one) for one in log.digests()])
    dash, name, signature = line.split(" ")
    assert (dash, name) == ("\u2014", origin)
    hint, signed = base64.b64decode(signature)[:4], base64.b64decode(signature)[4:]
    raw_key = signer.public.key.public_bytes_raw()
    assert hint == hashlib.sha256(origin.encode() + b"\n\x01" + raw_key).digest()[:4]
    signer.public.key.verify(signed, f"{origin}\n{size}\n{root}\n".encode())
    vkey = checkpoints.verifier_key(origin, signer.public)
    assert vkey == f"{origin}+{hint.hex()}+{base64.b64encode(bytes([1]) + raw_key).decode()}"
    assert checkpoints.verify(raw, [signer.public]).root == merkle.root(leaves)


def test_the_specifications_own_example_is_read():
    text = (
        "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
        "\u2014 example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGz"
        "Gku9nTo+zyWE+xeMcTOAYQ8=\n"
    )
    found = checkpoints.parse(text)
    assert (found.origin, found.size) == ("example.com/behind-the-sofa", 20852163)


def test_events_are_proven_without_the_registry(log, signer, model):
    sign(log, signer)
    for what, seq in (("credit@2", 2), ("1", 1)):
        assert run("prove", what, "--checkpoint", "head", "--output", "p", "--registry", log.path).exit_code == 0
        good = run("verify-log", "p", "--key", signer.pub, "--format", "json")
        assert good.exit_code == 0, good.stdout
        assert any(f"event {seq} is add credit" in text for text in json.loads(good.stdout)["held"])
    # what was changed on the way is refused
    lines = Path("p").read_text("utf-8").split("\n")
    event = json.loads(base64.b64decode(lines[1].split(" ")[1]))
    event["body"]["model"] = "0" * 64
    forged = base64.b64encode(json.dumps(event, sort_keys=True, separators=(",", ":")).encode()).decode()
    for place, text in ((1, f"extra {forged}"), (2, "index 1"), (3, lines[3][::-1])):
        Path("q").write_text("\n".join([*lines[:place], text, *lines[place + 1 :]]), "utf-8")
        assert run("verify-log", "q", "--key", signer.pub).exit_code in (1, 2)
    log.add("credit", model(3.0))
    newer = run("prove", "credit@3", "--checkpoint", "head", "--output", "r", "--registry", log.path)
    assert newer.exit_code == 2
    assert not Path("r").exists()


def test_growth_is_proven_between_two_checkpoints(log, signer, model):
    sign(log, signer, "old")
    for factor in (3.0, 4.0, 5.0):
        log.add("credit", model(factor))
    shutil.copy("old", "new")  # it goes on, under the same name
    sign(log, signer, "new")
    unlinked = run("verify-log", "old", "new", "--key", signer.pub)
    assert unlinked.exit_code == 3
    made = run("prove", "--old", "old", "--checkpoint", "new", "--output", "grown", "--registry", log.path)
    assert made.exit_code == 0, made.stdout + made.stderr
    assert run("verify-log", "old", "new", "grown", "--key", signer.pub).exit_code == 0
    assert run("verify-log", "grown", "--key", signer.pub).exit_code == 3  # the older checkpoint is not there
    swapped = run("prove", "--old", "new", "--checkpoint", "old", "--output", "x", "--registry", log.path)
    assert swapped.exit_code == 2


@pytest.fixture
def rewritten(log, model, signer, tmp_path, monkeypatch):
    """Another registry with the same number of events and the same name of the log: a second history."""
    with Registry(tmp_path / "second", create=True) as store:
        store.add("credit", model(8.0))
        store.add("credit", model(9.0))
        yield store


def test_a_second_history_is_found_from_two_checkpoints_alone(log, rewritten, signer):
    sign(log, signer, "one", "--origin", "example.org/m")
    sign(rewritten, signer, "two", "--origin", "example.org/m")
    found = run("verify-log", "one", "two", "--key", signer.pub)
    assert found.exit_code == 1
    assert "two histories" in found.stdout


def test_a_forked_view_cannot_be_joined_by_a_proof(log, rewritten, signer, model):
    sign(log, signer, "old", "--origin", "example.org/m")
    rewritten.add("credit", model(10.0))
    sign(rewritten, signer, "new", "--origin", "example.org/m")
    refused = run("prove", "--old", "old", "--checkpoint", "new", "--output", "x", "--registry", rewritten.path)
    assert refused.exit_code == 1
    assert "not those of old" in refused.stdout
    assert not Path("x").exists()
    # and a proof about the second history joins nothing of the first
    leaves = checkpoints.entries(rewritten.digests())
    Path("forged").write_text(logproofs.prove_growth(2, leaves, Path("new").read_text("utf-8")), "utf-8")
    assert run("verify-log", "old", "new", "forged", "--key", signer.pub).exit_code == 1


def test_two_branches_that_share_a_beginning_are_not_one_history(log, signer, model, tmp_path):
    origin = ("--origin", "example.org/m")
    sign(log, signer, "old", *origin)
    shutil.copytree(log.path, tmp_path / "branch")
    for factor in (3.0, 4.0):
        log.add("credit", model(factor))
    sign(log, signer, "one", *origin)
    with Registry(tmp_path / "branch") as branch:
        for factor in (5.0, 6.0, 7.0):
            branch.add("credit", model(factor))
        sign(branch, signer, "two", *origin)
    for name, store in (("one", log.path), ("two", tmp_path / "branch")):
        made = run(*("prove", "--old", "old", "--checkpoint", name, "--output", f"to-{name}", "--registry", store))
        assert made.exit_code == 0, made.stdout + made.stderr
    found = run("verify-log", "old", "one", "two", "to-one", "to-two", "--key", signer.pub)
    assert found.exit_code == 3
    assert "whether the log of 5 events goes on from that of 4" in found.stdout
    # nor does a proof past a checkpoint say anything of it
    past = run("verify-log", "old", "one", "two", "to-two", "--key", signer.pub)
    assert past.exit_code == 3


@pytest.mark.parametrize("attack", ["rewritten", "truncated", "forked"])
def test_a_checkpoint_kept_elsewhere_is_a_witness(attack, log, signer, model, tmp_path, monkeypatch):
    head = sign(log, signer, str(tmp_path / "witness"))
    before = head.read_bytes()
    log.add("credit", model(3.0))
    Registry(log.path, witnesses=[head]).folder.index.close()  # it goes on: all is well
    assert head.read_bytes() == before  # and nobody writes over what was signed
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nobody"))  # somebody who has not seen it before
    other = tmp_path / "other"
    with Registry(other, create=True) as store:
        for factor in {"rewritten": (7.0, 2.0), "truncated": (1.0,), "forked": (1.0, 6.0, 3.0)}[attack]:
            store.add("credit", model(factor))
    if attack == "truncated":  # the same first event, and the rest cut off
        shutil.rmtree(other)
        log.folder.index.close()
        shutil.copytree(log.path, other)
        with sqlite3.connect(other / "index.sqlite", isolation_level=None) as index:
            index.execute("DROP TRIGGER events_remain")
            index.execute("DELETE FROM events WHERE seq > 1")
            index.execute("DELETE FROM versions WHERE version > 1")
            index.execute(
                "CREATE TRIGGER events_remain BEFORE DELETE ON events\n"
                "        BEGIN SELECT RAISE (ABORT, 'the event log is append-only'); END"
            )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "newcomer"))
    Registry(other).folder.index.close()  # a newcomer without a witness cannot tell
    with pytest.raises(TamperedError, match=r"witness remembers"):
        Registry(other, witnesses=[head])
    refused = run("list", "--registry", other, "--witness", head)
    assert refused.exit_code == 2


def test_a_checkpoint_is_not_signed_over_another_history(log, rewritten, signer):
    sign(log, signer, "head")
    refused = run("checkpoint", "--key", signer.path, "--output", "head", "--registry", rewritten.path)
    assert refused.exit_code == 1
    assert checkpoints.verify(Path("head").read_bytes(), [signer.public]).size == 2


def test_bad_input_is_one_message(log, signer, stranger, tmp_path):
    head = sign(log, signer)
    signers.new_key_pair(tmp_path / "p256", kind="p256")
    where = ("--registry", log.path)
    for wrong, code in (
        (("checkpoint", "--key", "p256", "--output", "x", *where), 2),
        (("checkpoint", "--key", signer.path, "--origin", "two words", "--output", "x", *where), 2),
        (("checkpoint", "--key", signer.path, "--origin", "other", "--output", "head", *where), 1),
        (("prove", "--checkpoint", "head", "--output", "x", *where), 2),
        (("prove", "9", "--checkpoint", "head", "--output", "x", *where), 2),
        (("prove", "1", "--checkpoint", "nowhere", "--output", "x", *where), 2),
        (("prove", "1", "--checkpoint", signer.pub, "--output", "x", *where), 2),
        (("verify-log", "head", "--key", stranger.pub), 1),
        (("verify-log", signer.pub, "--key", signer.pub), 2),
    ):
        done = run(*wrong)
        assert done.exit_code == code, (wrong, done.stdout, done.stderr)
        assert not Path("x").exists()
    changed = head.read_text("utf-8").replace("\n2\n", "\n1\n")
    with pytest.raises(VerificationError, match="was changed"):
        checkpoints.verify(changed, [signer.public])
    with pytest.raises(CertificateError, match="no signed checkpoint"):
        checkpoints.verify(b"\xff\xfe", [signer.public])
    with pytest.raises(KeyFileError, match="ed25519"):
        checkpoints.verifier_key("a", load_public("p256.pub"))
    with pytest.raises(CertificateError, match="no proof"):
        logproofs.read_proof(b"old x\n\n")
