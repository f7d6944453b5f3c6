"""Timestamps in the page's modules: authorities of many kinds, broken ones, and every changed bit, beside Python's answers."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairkit_registry.errors import VerificationError
from fairkit_registry.evidence import timestamps

pytest.importorskip("rfc3161_client", reason="rfc3161-client is not installed (extra timestamp)")

HERE = Path(__file__).parent
PEM = serialization.Encoding.PEM
SIGNATURE = bytes(range(64))
CONFIG = """
[ tsa ]
default_tsa = one
[ one ]
serial = {folder}/serial
crypto_device = builtin
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = {digest}
{chain}
default_policy = 1.2.3.4.1
digests = sha256, sha384, sha512
"""


def certificate(name, key, issuer=None, *, authority=False, purposes=(), critical=True, more=(), days=(-2, 3650)):
    """Make a certificate: `issuer` is a pair of certificate and key, or None for a root."""
    by, by_key = issuer or (None, key)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
    )
    if authority is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=critical)
    for extension in more:
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(by_key, hashes.SHA384() if isinstance(by_key, ec.EllipticCurvePrivateKey) else hashes.SHA256())


class Authority:
    """A root, perhaps one below it, and a signer of timestamps, played by `openssl ts`."""

    def __init__(self, folder, *, key=None, root_key=None, middle=None, signer=None, digest="sha256"):
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        self.folder, self.digest = folder, digest
        root_key = root_key or rsa.generate_private_key(65537, 2048)
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        self.root = certificate("root", root_key, authority=True)
        issuer, chain = (self.root, root_key), ""
        if middle is not None:
            middle_key = ec.generate_private_key(ec.SECP384R1())
            # DER sorts the certificates of a token, shorter ones first, and openssl writes the signer's first
            between = certificate("an authority between them with a long name", middle_key, issuer, **middle)
            issuer, chain = (between, middle_key), f"certs = {folder}/chain.pem"
            (folder / "chain.pem").write_bytes(between.public_bytes(PEM))
        given = {"purposes": [ExtendedKeyUsageOID.TIME_STAMPING]} | (signer or {})
        self.signer = certificate("tsa", self.key, issuer, **given)
        (folder / "tsa.pem").write_bytes(self.signer.public_bytes(PEM))
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (folder / "tsa.key").write_bytes(self.key.private_bytes(PEM, form, plain))
        (folder / "serial").write_text("01\n")
        (folder / "tsa.cnf").write_text(CONFIG.format(folder=folder, digest=digest, chain=chain))

    @property
    def roots(self):
        return [self.root.public_bytes(PEM).decode()]

    def token(self, message=SIGNATURE):
        (self.folder / "m").write_bytes(message)
        for command in (
            ["openssl", "ts", "-query", "-data", "m", f"-{self.digest}", "-cert", "-out", "q"],
            ["openssl", "ts", "-reply", "-config", "tsa.cnf", "-queryfile", "q", "-out", "r"],
        ):
            done = subprocess.run(command, cwd=self.folder, check=False, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"this openssl does not sign so: {done.stderr[-200:]}")
        return (self.folder / "r").read_bytes()


def page_says(node, cases):
    """Return what the page's modules answer: seconds since 1970, or None."""

    def text(one):
        return base64.b64encode(one).decode()

    lines = [json.dumps({"token": text(t), "signature": text(s), "roots": r}) for t, s, r in cases]
    done = subprocess.run(
        [node, str(HERE / "stamps.mjs")], input="\n".join(lines), capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    return [None if one is None else one / 1000 for one in answers]


def python_says(token, signature, roots):
    try:
        return timestamps.time_of(token, signature, roots).timestamp()
    except VerificationError:
        return None


def both(node, token, signature, roots):
    page, python = page_says(node, [(token, signature, roots)])[0], python_says(token, signature, roots)
    assert page == python, (page, python)
    return page


@pytest.mark.long
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"key": "rsa"},
        {"key": ec.SECP384R1(), "digest": "sha384"},
        {"key": ec.SECP521R1(), "digest": "sha512"},
        {"root_key": ec.SECP384R1()},
        {"middle": {"authority": True}},
    ],
    ids=["p256", "rsa", "p384", "p521", "root-p384", "one-between"],
)
def test_authorities_of_many_kinds(node, tmp_path, given):
    def made(kind):
        return rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(kind)

    authority = Authority(tmp_path, **{k: made(v) if k in ("key", "root_key") else v for k, v in given.items()})
    at = both(node, authority.token(), SIGNATURE, authority.roots)
    assert at == pytest.approx(datetime.now(UTC).timestamp(), abs=120)
    assert both(node, authority.token(), SIGNATURE[::-1], authority.roots) is None


@pytest.mark.long
@pytest.mark.parametrize(
    "given",
    [
        {"signer": {"purposes": [ExtendedKeyUsageOID.TIME_STAMPING], "days": (-20, -1)}},
        {"signer": {"purposes": [ExtendedKeyUsageOID.TIME_STAMPING], "days": (1, 20)}},
        {"middle": {"authority": False}},
        {"middle": {"authority": None}},
        {"middle": {"authority": True, "days": (-20, -1)}},
        {"middle": {"authority": True, "more": [x509.KeyUsage(True, *[False] * 8)]}},
        {"middle": {"authority": True, "more": [x509.InhibitAnyPolicy(0)]}},
    ],
    ids=["expired", "not-yet", "no-authority", "no-constraints", "expired-between", "may-not-sign", "unknown-critical"],
)
def test_authorities_that_are_none(node, tmp_path, given):
    authority = Authority(tmp_path, **given)
    token = authority.token()
    assert page_says(node, [(token, SIGNATURE, authority.roots)]) == [None]


def test_a_stranger_with_the_same_names_is_no_authority(node, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = Authority(tmp_path / "one"), Authority(tmp_path / "two")
    assert both(node, two.token(), SIGNATURE, one.roots) is None
    # openssl looks at the first root of a name only, the page at each
    assert page_says(node, [(two.token(), SIGNATURE, one.roots + two.roots)]) != [None]


@pytest.mark.long
def test_every_changed_byte(node, tmp_path):
    """The page takes no token that Python refuses, wherever a bit of it is turned or it is cut."""
    authority = Authority(tmp_path, middle={"authority": True})
    token, roots = authority.token(), authority.roots
    changed = [
        token[:place] + bytes([token[place] ^ bit]) + token[place + 1 :]
        for place in range(len(token))
        for bit in (1, 0x80)
    ]
    changed += [token[:place] for place in range(0, len(token), 7)]
    page = page_says(node, [(one, SIGNATURE, roots) for one in changed])
    right = python_says(token, SIGNATURE, roots)
    assert all(answer in (None, right) for answer in page)
    python = [python_says(one, SIGNATURE, roots) for one in changed]
    assert [place for place, (a, b) in enumerate(zip(page, python, strict=True)) if a is not None and b is None] == []
    assert sum(answer is None for answer in page) > 0.95 * len(page)
