from __future__ import annotations

import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from fairkit.errors import PluginError
from fairkit.support.files import FileError
from fairkit_registry.errors import KeyFileError, RegistryError
from fairkit_registry.evidence import signers
from fairkit_registry.evidence import signers as keys


def test_a_new_pair_is_private_belongs_together_and_is_never_replaced(tmp_path):
    public = signers.new_key_pair(tmp_path / "k")
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    assert keys.load_public(tmp_path / "k.pub") == public
    assert keys.keyid_of(public.pem) == public.keyid
    assert signers.load_secret(tmp_path / "k").public == public
    before = (tmp_path / "k").read_bytes()
    with pytest.raises(RegistryError, match="exists already"):
        signers.new_key_pair(tmp_path / "k")
    (tmp_path / "k").unlink()
    with pytest.raises(RegistryError, match=r"k\.pub exists already"):
        signers.new_key_pair(tmp_path / "k")
    assert not (tmp_path / "k").exists()
    assert signers.new_key_pair(tmp_path / "other").keyid != public.keyid
    assert before.startswith(b"-----BEGIN PRIVATE KEY-----")


def test_a_key_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        signers.new_key_pair(tmp_path / "nowhere" / "k")
    assert list(tmp_path.iterdir()) == []


def test_the_wrong_half_is_named(signer):
    with pytest.raises(KeyFileError, match="is a secret key; verify with the public one"):
        keys.load_public(signer.path)
    with pytest.raises(KeyFileError, match="is a public key; signing needs the secret one"):
        signers.load_secret(signer.pub)


@pytest.mark.parametrize("load", [keys.load_public, signers.load_secret])
@pytest.mark.parametrize("content", [b"", b"hello", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_what_is_no_key_is_refused(load, content, tmp_path):
    (tmp_path / "k").write_bytes(content)
    with pytest.raises(KeyFileError):
        load(tmp_path / "k")
    with pytest.raises(KeyFileError, match="cannot read"):
        load(tmp_path / "missing")


def test_other_kinds_of_keys_are_refused(tmp_path):
    secret = rsa.generate_private_key(65537, 2048)
    pem = secret.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(KeyFileError, match="ed25519"):
        keys.parse_public(pem)
    other = ec.generate_private_key(ec.SECP384R1()).public_key()
    with pytest.raises(KeyFileError, match="P-256"):
        keys.parse_public(other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    wide = ec.generate_private_key(ec.SECP384R1())
    for name, key, closing in (("rsa", secret, NoEncryption()), ("wide", wide, BestAvailableEncryption(b"x"))):
        (tmp_path / name).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, closing))
        (tmp_path / name).chmod(0o600)
        with pytest.raises(KeyFileError, match="ed25519 or ECDSA P-256"):
            signers.load_secret(tmp_path / name, passphrase=lambda what: "x")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o601])
def test_a_secret_key_that_others_can_use_is_refused(tmp_path, mode):
    public = signers.new_key_pair(tmp_path / "k")
    (tmp_path / "k").chmod(mode)
    with pytest.raises(KeyFileError, match=rf"mode is {mode:04o}.*chmod 600 .*--insecure-key"):
        signers.load_secret(tmp_path / "k")
    assert signers.load_secret(tmp_path / "k", insecure=True).public == public
    (tmp_path / "k").chmod(0o400)
    assert signers.load_secret(tmp_path / "k").public == public


@pytest.mark.parametrize("kind", signers.KINDS)
@pytest.mark.parametrize("passphrase", [None, "four words, and ümläute"])
def test_each_kind_signs_the_same_bytes_again(tmp_path, kind, passphrase):
    public = signers.new_key_pair(tmp_path / "k", kind=kind, passphrase=passphrase)
    asked = []

    def ask(what):
        asked.append(what)
        return passphrase

    secret = signers.load_secret(tmp_path / "k", passphrase=ask)
    assert secret.public == public == keys.load_public(tmp_path / "k.pub")
    assert public.kind == {"ed25519": "ed25519", "p256": "ecdsa-p256"}[kind]
    assert len(asked) == (passphrase is not None)
    signature = secret.sign(b"message")
    assert signature == secret.sign(b"message")
    assert public.verifies(signature, b"message")
    assert not public.verifies(signature, b"massage")


def test_an_encrypted_key_is_sealed_and_a_wrong_passphrase_is_told(tmp_path):
    signers.new_key_pair(tmp_path / "k", passphrase="right")
    raw = (tmp_path / "k").read_bytes()
    assert raw.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeyFileError, match="no passphrase was given"):
        signers.load_secret(tmp_path / "k")
    with pytest.raises(KeyFileError, match="the passphrase does not open the secret key"):
        signers.load_secret(tmp_path / "k", passphrase=lambda what: "wrong")
    for place in (80, 120, 250):  # in the parameters and in what is sealed
        damaged = raw[:place] + (b"A" if raw[place : place + 1] != b"A" else b"B") + raw[place + 1 :]
        (tmp_path / "k").write_bytes(damaged)
        with pytest.raises(KeyFileError):
            signers.load_secret(tmp_path / "k", passphrase=lambda what: "right")
    with pytest.raises(KeyFileError, match="empty passphrase"):
        signers.new_key_pair(tmp_path / "empty", passphrase="")
    assert not (tmp_path / "empty").exists()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("kind", signers.KINDS)
def test_openssl_reads_our_encrypted_key_and_we_read_its(tmp_path, kind):
    public = signers.new_key_pair(tmp_path / "k", kind=kind, passphrase="right")
    (tmp_path / "pass").write_text("right\n")
    told = f"file:{tmp_path / 'pass'}"

    def openssl(*arguments):
        return subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=tmp_path).stdout

    assert openssl("pkey", "-in", "k", "-passin", told, "-pubout").decode() == public.pem
    plain = openssl("pkey", "-in", "k", "-passin", told)
    for scheme in (("-scrypt",), ("-v2prf", "hmacWithSHA256", "-iter", "600000")):
        (tmp_path / "plain").write_bytes(plain)
        openssl("pkcs8", "-topk8", "-in", "plain", "-passout", told, "-out", "theirs", *scheme)
        (tmp_path / "theirs").chmod(0o600)
        assert signers.load_secret(tmp_path / "theirs", passphrase=lambda what: "right").public == public


def test_a_signer_of_a_plugin_is_opened_by_its_name_and_checked(tmp_path, monkeypatch):
    (tmp_path / "liar.py").write_text(
        "import fairkit\nfrom pathlib import Path\nfrom fairkit.signers import Signer\n"
        "class Liar(Signer):\n    name = 'liar'\n"
        "    public_pem = Path(__file__).with_name('k.pub').read_text()\n"
        "    @classmethod\n    def open(cls, address, *, passphrase):\n        return cls()\n"
        "    def sign(self, message):\n        return b'x' * 64\n"
        "@fairkit.hookimpl\ndef fairkit_signers():\n    return [Liar]\n"
    )
    public = signers.new_key_pair(tmp_path / "k")
    monkeypatch.setenv("FAIRKIT_PLUGINS", str(tmp_path / "liar.py"))
    opened = signers.load_secret("liar:key")
    assert opened.public == public
    with pytest.raises(KeyFileError, match="signature that its public key does not verify"):
        opened.sign(b"message")
    with pytest.raises(KeyFileError, match="no such file, and no plugin 'nobody' that signs"):
        signers.load_secret("nobody:key")
    with pytest.raises(PluginError, match="'group' offers no signer"):
        signers.load_secret("group:key")
