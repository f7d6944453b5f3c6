from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from fairkit.support.files import FileError
from fairkit_registry.errors import KeyFileError, RegistryError
from fairkit_registry.evidence import keys


def test_a_new_pair_is_private_belongs_together_and_is_never_replaced(tmp_path):
    public = keys.new_key_pair(tmp_path / "k")
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600
    assert keys.load_public(tmp_path / "k.pub") == public
    assert keys.keyid_of(public.pem) == public.keyid
    assert keys.public_half(keys.load_secret(tmp_path / "k")) == public
    before = (tmp_path / "k").read_bytes()
    with pytest.raises(RegistryError, match="exists already"):
        keys.new_key_pair(tmp_path / "k")
    (tmp_path / "k").unlink()
    with pytest.raises(RegistryError, match=r"k\.pub exists already"):
        keys.new_key_pair(tmp_path / "k")
    assert not (tmp_path / "k").exists()
    assert keys.new_key_pair(tmp_path / "other").keyid != public.keyid
    assert before.startswith(b"-----BEGIN PRIVATE KEY-----")


def test_a_key_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        keys.new_key_pair(tmp_path / "nowhere" / "k")
    assert list(tmp_path.iterdir()) == []


def test_the_wrong_half_is_named(signer):
    with pytest.raises(KeyFileError, match="is a secret key; verify with the public one"):
        keys.load_public(signer.path)
    with pytest.raises(KeyFileError, match="is a public key; signing needs the secret one"):
        keys.load_secret(signer.pub)


@pytest.mark.parametrize("load", [keys.load_public, keys.load_secret])
@pytest.mark.parametrize(
    "content", [b"", b"hello", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"]
)
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
    (tmp_path / "rsa").write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(KeyFileError, match="ed25519"):
        keys.load_secret(tmp_path / "rsa")
    (tmp_path / "locked").write_bytes(
        secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    )
    with pytest.raises(KeyFileError, match="encrypted"):
        keys.load_secret(tmp_path / "locked")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o601])
def test_a_secret_key_that_others_can_use_is_refused(tmp_path, mode):
    public = keys.new_key_pair(tmp_path / "k")
    (tmp_path / "k").chmod(mode)
    with pytest.raises(KeyFileError, match=rf"mode is {mode:04o}.*chmod 600 .*--insecure-key"):
        keys.load_secret(tmp_path / "k")
    assert keys.public_half(keys.load_secret(tmp_path / "k", insecure=True)) == public
    (tmp_path / "k").chmod(0o400)
    assert keys.public_half(keys.load_secret(tmp_path / "k")) == public
