"""`fairkit key new` and signing with what it made: passphrases from files, descriptors and terminals, and tokens."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairkit_registry.evidence import signed as dsse
from fairkit_registry.evidence import signers
from fairkit_registry.evidence.signers import load_public

FAIRKIT = (sys.executable, "-c", "from fairkit_cli.main import run; run()")


@pytest.fixture
def here(tmp_path):
    (tmp_path / "people.csv").write_text("age,paid\n30,yes\n40,no\n")
    return tmp_path


def run(here: Path, *arguments: str, **changes):
    environment = {k: v for k, v in os.environ.items() if k != "FAIRKIT_KEY_PASSPHRASE_FILE"}
    environment |= changes.pop("env", {})
    given = {"stdin": subprocess.DEVNULL} | changes
    return subprocess.run(
        [*FAIRKIT, *arguments], cwd=here, env=environment, capture_output=True, text=True, check=False, **given
    )


def signed_by(here: Path, public: Path) -> bool:
    raw = (here / "s.json").read_bytes()
    return dsse.signers(dsse.Envelope.from_bytes(raw), [load_public(public)]) == (load_public(public),)


@pytest.mark.long
def test_without_a_terminal_the_key_is_plain_and_a_note_says_so(here):
    done = run(here, "key", "new", "k", "--format", "json")
    assert done.returncode == 0
    assert done.stderr.count("written without encryption") == 1
    assert json.loads(done.stdout)["encrypted"] is False
    quiet = run(here, "key", "new", "other", "--no-passphrase", "--type", "p256", "--format", "json")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert json.loads(quiet.stdout)["type"] == "ecdsa-p256"
    assert run(here, "policy", "lock", "--data", "people.csv", "--key", "other", "--output", "s.json").returncode == 0
    assert signed_by(here, here / "other.pub")


@pytest.mark.long
def test_a_passphrase_from_a_file_and_from_a_descriptor(here):
    (here / "pass").write_text("right\nsecond line\n")
    (here / "pass").chmod(0o600)
    told = {"FAIRKIT_KEY_PASSPHRASE_FILE": "pass"}
    assert run(here, "key", "new", "k", env=told).returncode == 0
    assert b"ENCRYPTED" in (here / "k").read_bytes()
    reading, writing = os.pipe()
    os.write(writing, b"right\n")
    os.close(writing)
    # two keys, one pipe: it can be read only once
    shutil.copy(here / "k", here / "again")
    done = run(
        here,
        *("policy", "lock", "--data", "people.csv", "--key", "k", "--key", "again", "--output", "s.json"),
        env={"FAIRKIT_KEY_PASSPHRASE_FILE": f"/dev/fd/{reading}"},
        pass_fds=[reading],
    )
    os.close(reading)
    assert done.returncode == 0, done.stderr
    assert signed_by(here, here / "k.pub")


@pytest.mark.long
@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"wrong\n", 0o600, "the passphrase does not open the secret key k"),
        (b"\nright\n", 0o600, "first line of pass"),
        (b"\xff\n", 0o600, "is not UTF-8"),
        (b"right\n", 0o644, "others can use the passphrase file pass"),
        (None, None, "cannot read the passphrase in pass"),
        (b"unset", 0o600, "there is no terminal to ask for it: set FAIRKIT_KEY_PASSPHRASE_FILE"),
    ],
)
def test_what_does_not_open_a_key_is_one_message(here, content, mode, said):
    signers.new_key_pair(here / "k", passphrase="right")
    if content is not None:
        (here / "pass").write_bytes(content)
        (here / "pass").chmod(mode)
    told = {} if content == b"unset" else {"FAIRKIT_KEY_PASSPHRASE_FILE": "pass"}
    done = run(here, "policy", "lock", "--data", "people.csv", "--key", "k", "--output", "s.json", env=told)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert done.stderr.count("error") <= 1
    assert not (here / "s.json").exists()


def typed(here: Path, lines: list[bytes], *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal, and answer each prompt with a line."""
    terminal, other = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "FAIRKIT_KEY_PASSPHRASE_FILE"}
    process = subprocess.Popen(
        [*FAIRKIT, *arguments],
        **dict.fromkeys(("stdin", "stdout", "stderr"), other),
        cwd=here,
        env=environment,
        start_new_session=True,
    )
    os.close(other)
    seen, answered = b"", 0
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # Linux's way to say that the other end has closed
            break
        if not chunk:
            break
        seen += chunk
        if lines and seen[answered:].rstrip().endswith(b":"):  # a prompt since the last answer
            answered = len(seen)
            os.write(terminal, lines.pop(0))
    code = process.wait()
    os.close(terminal)
    return code, seen.decode("utf-8", "replace")


@pytest.mark.long
def test_a_terminal_is_asked_and_shows_nothing(here):
    code, seen = typed(here, [b"secret words\n", b"secret words\n"], "key", "new", "k")
    assert code == 0, seen
    assert "secret words" not in seen
    assert signers.load_secret(here / "k", passphrase=lambda what: "secret words").public.kind == "ed25519"
    code, seen = typed(here, [b"one\n", b"two\n"], "key", "new", "other")
    assert code == 2
    assert "the two passphrases differ" in seen
    assert not (here / "other").exists()
    told = ("policy", "lock", "--data", "people.csv", "--key", "k", "--output", "s.json")
    code, seen = typed(here, [b"secret words\n"], *told)
    assert code == 0, seen
    assert signed_by(here, here / "k.pub")


MODULE = Path("/usr/lib/softhsm/libsofthsm2.so")


@pytest.fixture
def token(here):
    pytest.importorskip("pkcs11", reason="python-pkcs11 is not installed (extra pkcs11)")
    tool = shutil.which("softhsm2-util")
    if tool is None or not MODULE.is_file():
        pytest.skip("softhsm2 is not installed")
    (here / "tokens").mkdir()
    (here / "hsm.conf").write_text(f"directories.tokendir = {here / 'tokens'}\nobjectstore.backend = file\n")
    environment = os.environ | {"SOFTHSM2_CONF": str(here / "hsm.conf")}
    signers.new_key_pair(here / "k", kind="p256")

    def call(*arguments):
        subprocess.run([tool, *arguments], check=True, capture_output=True, env=environment, cwd=here)

    call("--init-token", "--free", "--label", "fk", "--so-pin", "0000", "--pin", "1234")
    call("--import", "k", "--token", "fk", "--label", "auditor", "--id", "01a0", "--pin", "1234")
    (here / "k").unlink()
    (here / "pin").write_text("1234\n")
    (here / "wrong-pin").write_text("4321\n")
    return {"SOFTHSM2_CONF": str(here / "hsm.conf")}


def sign_with(here, address, env):
    return run(here, "policy", "lock", "--data", "people.csv", "--key", address, "--output", "s.json", env=env)


@pytest.mark.long
def test_a_key_in_a_token_signs(here, token):
    for which in ("object=auditor", "id=%01%a0", "object=auditor;id=%01%A0"):
        done = sign_with(here, f"pkcs11:token=fk;{which}?module-path={MODULE}&pin-source=file:pin", token)
        assert done.returncode == 0, done.stderr
        assert signed_by(here, here / "k.pub")
    (here / "pin").chmod(0o600)
    asked = token | {"FAIRKIT_KEY_PASSPHRASE_FILE": "pin"}
    assert sign_with(here, f"pkcs11:token=fk;object=auditor?module-path={MODULE}", asked).returncode == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("pkcs11:token=fk;object=nobody?module-path=M&pin-source=file:pin", "the token has no secret key of that name"),
        ("pkcs11:token=other;object=auditor?module-path=M&pin-source=file:pin", "no such token (there are: fk)"),
        ("pkcs11:token=fk;object=auditor?module-path=M&pin-source=file:wrong-pin", "the PIN is wrong"),
        ("pkcs11:token=fk;object=auditor?module-path=M&pin-source=file:missing", "cannot read the PIN in missing"),
        ("pkcs11:token=fk;object=auditor?module-path=M", "there is no terminal to ask for it"),
    ],
)
def test_what_a_token_does_not_have_is_one_message(here, token, address, said):
    done = sign_with(here, address.replace("=M", f"={MODULE}"), token)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert "1234" not in done.stderr
    assert not (here / "s.json").exists()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("pkcs11:token=fk;object=auditor?module-path=M&pin-value=1234", "seen by other users"),
        ("pkcs11:token=fk;object=auditor?module-path=/no/such", "there is no library /no/such"),
        ("pkcs11:token=fk;object=auditor", "say which library reaches the token"),
        ("pkcs11:token=fk?module-path=M", "say which key"),
        ("pkcs11:token=fk;object=a;colour=red", "'colour' is not understood"),
        ("pkcs11:token=fk;object=a;object=b", "'object' is not understood"),
    ],
)
def test_an_address_that_is_not_understood_is_told_before_the_token_is_asked(address, said):
    from fairkit.errors import ParameterError
    from fairkit_pkcs11 import Pkcs11Signer

    with pytest.raises(ParameterError, match=said) as refused:
        Pkcs11Signer.open(address, passphrase=lambda what: pytest.fail("it asks for a PIN"))
    assert "1234" not in str(refused.value)
