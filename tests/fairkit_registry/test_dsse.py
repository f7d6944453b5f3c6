from __future__ import annotations

import base64
import json
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence import signed as dsse
from fairkit_registry.evidence import signers as keys

HELLO = b"hello world"
TYPE = "http://example.com/HelloWorld"
openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


def p256():
    secret = ec.generate_private_key(ec.SECP256R1())
    pem = secret.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return secret, keys.parse_public(pem)


def test_pae_is_the_vector_of_the_specification():
    assert dsse.pae(TYPE, HELLO) == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_the_specifications_own_p256_signature_verifies():
    # protocol.md of DSSE 1.0.2, "Test vectors"
    numbers = ec.EllipticCurvePublicNumbers(
        46950820868899156662930047687818585632848591499744589407958293238635476079160,
        5640078356564379163099075877009565129882514886557779369047442380624545832820,
        ec.SECP256R1(),
    )
    pem = numbers.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    raw = base64.b64decode("A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA==")
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    # The vector gives r and s one after the other; signatures here are in DER, as in OpenSSL.
    sig = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    envelope = dsse.Envelope(payload=HELLO, payload_type=TYPE, signatures=(dsse.Signature(sig=sig),))
    assert dsse.signers(envelope, [keys.parse_public(pem)])


@given(st.tuples(st.text(), st.binary()), st.tuples(st.text(), st.binary()))
def test_two_documents_never_have_one_encoding(one, other):
    assert (dsse.pae(*one) == dsse.pae(*other)) == (one == other)


def test_an_envelope_goes_to_json_and_back(signer):
    envelope = dsse.sign(HELLO, TYPE, [signer.secret])
    assert dsse.Envelope.from_bytes(envelope.to_bytes()) == envelope
    assert dsse.sign(HELLO, TYPE, [signer.secret]).to_bytes() == envelope.to_bytes()


def test_url_safe_base64_is_read_too(signer):
    payload = bytes(range(256))
    record = json.loads(dsse.sign(payload, TYPE, [signer.secret]).to_bytes())
    record["payload"] = base64.urlsafe_b64encode(payload).decode()
    assert dsse.Envelope.from_bytes(json.dumps(record).encode()).payload == payload


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"nan",
        b'{"payload": "", "payload": "", "payloadType": "x", "signatures": [{"sig": ""}]}',
        b'{"payload": "", "payloadType": "x", "signatures": []}',
        b'{"payload": "", "payloadType": "x", "signatures": [1]}',
        b'{"payload": "", "payloadType": "x", "signatures": [{}]}',
        b'{"payload": "", "payloadType": 3, "signatures": [{"sig": ""}]}',
        b'{"payload": "?", "payloadType": "x", "signatures": [{"sig": ""}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_envelope_is_refused(raw):
    with pytest.raises(CertificateError):
        dsse.Envelope.from_bytes(raw)


def test_a_byte_order_mark_is_one_clear_refusal(signer):
    raw = dsse.sign(b"{}", TYPE, [signer.secret]).to_bytes()
    with pytest.raises(CertificateError, match="begins with a byte-order mark; save it as UTF-8 without one"):
        dsse.Envelope.from_bytes(b"\xef\xbb\xbf" + raw)


def test_only_a_trusted_key_counts_and_the_key_id_decides_nothing(signer, stranger):
    envelope = dsse.sign(HELLO, TYPE, [signer.secret])
    assert dsse.signers(envelope, [signer.public]) == (signer.public,)
    assert dsse.signers(envelope, [stranger.public]) == ()
    renamed = (dsse.Signature(sig=envelope.signatures[0].sig, keyid=stranger.public.keyid),)
    lying = dsse.Envelope(payload=HELLO, payload_type=TYPE, signatures=renamed)
    assert dsse.signers(lying, [signer.public, stranger.public]) == (signer.public,)


def test_two_signatures_name_both_keys_and_a_doubled_one_counts_once(signer, stranger):
    both = dsse.sign(HELLO, TYPE, [signer.secret, stranger.secret])
    assert dsse.signers(both, [stranger.public, signer.public]) == (stranger.public, signer.public)
    twice = dsse.sign(HELLO, TYPE, [signer.secret, signer.secret])
    assert dsse.signers(twice, [signer.public, signer.public]) == (signer.public,)


def test_p256_is_verified(signer):
    secret, public = p256()
    sig = secret.sign(dsse.pae(TYPE, HELLO), ec.ECDSA(SHA256()))
    envelope = dsse.Envelope(payload=HELLO, payload_type=TYPE, signatures=(dsse.Signature(sig=sig),))
    assert dsse.signers(envelope, [public, signer.public]) == (public,)
    other = dsse.Envelope(payload=b"hello w0rld", payload_type=TYPE, signatures=envelope.signatures)
    assert dsse.signers(other, [public]) == ()


def test_securesystemslib_verifies_our_envelope_and_we_verify_theirs(signer, stranger):
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import CryptoSigner, SSlibKey

    envelope = dsse.sign(HELLO, TYPE, [signer.secret])
    theirs = Envelope.from_dict(json.loads(envelope.to_bytes()))
    key = SSlibKey.from_crypto(signer.public.key, keyid=signer.public.keyid)
    assert theirs.verify([key], 1)
    wrong = SSlibKey.from_crypto(stranger.public.key, keyid=signer.public.keyid)
    with pytest.raises(VerificationError):
        theirs.verify([wrong], 1)

    made = Envelope(HELLO, TYPE, {})
    made.sign(CryptoSigner(signer.secret.key))
    back = dsse.Envelope.from_bytes(json.dumps(made.to_dict()).encode())
    assert dsse.signers(back, [signer.public]) == (signer.public,)
    # P-256 as securesystemslib signs it
    secret, public = p256()
    made = Envelope(HELLO, TYPE, {})
    made.sign(CryptoSigner(secret))
    back = dsse.Envelope.from_bytes(json.dumps(made.to_dict()).encode())
    assert dsse.signers(back, [public]) == (public,)


@openssl
def test_the_openssl_command_verifies_our_envelope(signer, stranger, tmp_path):
    envelope = json.loads(dsse.sign(HELLO, TYPE, [signer.secret]).to_bytes())
    (tmp_path / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    (tmp_path / "pae").write_bytes(b"DSSEv1 29 http://example.com/HelloWorld 11 hello world")

    def verify(pub):
        return subprocess.run(
            [
                *("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", pub, "-rawin"),
                *("-sigfile", tmp_path / "sig", "-in", tmp_path / "pae"),
            ],
            capture_output=True,
            check=False,
        ).returncode

    assert verify(signer.pub) == 0
    assert verify(stranger.pub) != 0


@openssl
def test_we_verify_what_the_openssl_command_signs_with_p256(tmp_path):
    def run(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=tmp_path)

    run("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "k")
    run("pkey", "-in", "k", "-pubout", "-out", "k.pub")
    (tmp_path / "pae").write_bytes(dsse.pae(TYPE, HELLO))
    run("pkeyutl", "-sign", "-inkey", "k", "-rawin", "-digest", "sha256", "-in", "pae", "-out", "sig")
    sig = dsse.Signature(sig=(tmp_path / "sig").read_bytes())
    envelope = dsse.Envelope(payload=HELLO, payload_type=TYPE, signatures=(sig,))
    public = keys.load_public(tmp_path / "k.pub")
    assert public.kind == "ecdsa-p256"
    assert dsse.signers(envelope, [public]) == (public,)
