"""Proven time: timestamps by a real authority (openssl ts), which the test starts."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from typer.testing import CliRunner

import fairkit
from fairkit_cli.main import app
from fairkit_registry.errors import CertificateError, ContradictionError, VerificationError
from fairkit_registry.evidence import certificate as certificates
from fairkit_registry.evidence import certifying, timestamping, timestamps
from fairkit_registry.evidence.timestamping import asking
from fairkit_registry.policies import AliasPolicy
from fairkit_registry.promotion.run import evaluate

pytest.importorskip("httpx", reason="httpx is not installed (extra timestamp)")
pytest.importorskip("rfc3161_client", reason="rfc3161-client is not installed (extra timestamp)")

CONFIG = """
[ tsa ]
default_tsa = one
[ one ]
serial = {folder}/serial
crypto_device = builtin
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1
"""


def issued(name, key, issuer, issuer_key, *, authority):
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
        builder = builder.add_extension(usage, critical=True)
    return builder.sign(issuer_key, hashes.SHA256())


def started(folder):
    """A root, a signer for timestamps, and a server that asks openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    root_key, key = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    root = issued("root", root_key, None, root_key, authority=True)
    signer = issued("tsa", key, root, root_key, authority=False)
    pem = serialization.Encoding.PEM
    (folder / "root.pem").write_bytes(root.public_bytes(pem))
    (folder / "tsa.pem").write_bytes(signer.public_bytes(pem))
    plain = serialization.NoEncryption()
    (folder / "tsa.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    (folder / "serial").write_text("01\n")
    (folder / "tsa.cnf").write_text(CONFIG.format(folder=folder))
    state = SimpleNamespace(root=folder / "root.pem", answer=None)
    lock = threading.Lock()  # openssl counts in a file

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["content-length"]))
            with lock:
                (folder / "q.tsq").write_bytes(query)
                command = ["openssl", "ts", "-reply", "-config", "tsa.cnf", "-queryfile", "q.tsq", "-out", "r.tsr"]
                subprocess.run(command, cwd=folder, check=True, capture_output=True)
                body = (folder / "r.tsr").read_bytes()
            body = body if state.answer is None else state.answer
            self.send_response(200)
            self.send_header("Content-Type", "application/timestamp-reply")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_) -> None:
            pass

    state.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.server.daemon_threads = True
    state.url = f"http://127.0.0.1:{state.server.server_address[1]}/"
    threading.Thread(target=state.server.serve_forever, daemon=True).start()
    return state


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    both = [started(tmp_path_factory.mktemp("tsa")) for _ in range(2)]
    yield both
    for one in both:
        one.server.shutdown()
        one.server.server_close()


@pytest.fixture
def tsa(authorities):
    authorities[0].answer = None
    return authorities[0]


def stamp(path, tsa):
    raw = certifying.stamped(path.read_bytes(), asking(tsa.url))
    path.write_bytes(raw)
    return path


def test_a_timestamp_proves_the_time_of_a_signature(model, certify, signer, tsa):
    before = datetime.now(UTC) - timedelta(seconds=2)
    path = stamp(certify(model()), tsa)
    roots = timestamps.read_roots([tsa.root])
    found = certificates.verify(path.read_bytes(), [signer.public], timestamp_roots=roots)
    assert before <= found.proven_at <= datetime.now(UTC) + timedelta(seconds=2)
    # who asks for none sees the same certificate, and nothing is said about its time
    assert certificates.verify(path.read_bytes(), [signer.public]).proven_at is None


def test_another_root_another_signature_a_flipped_byte_and_none_are_refused(
    model, certify, signer, stranger, authorities, tsa
):
    path = stamp(certify(model()), tsa)
    roots, foreign = (timestamps.read_roots([one.root]) for one in authorities)
    with pytest.raises(VerificationError, match="not by an authority that you trust"):
        certificates.verify(path.read_bytes(), [signer.public], timestamp_roots=foreign)
    plain = certify(model(2.0)).read_bytes()
    with pytest.raises(VerificationError, match="no trusted signature on it has a timestamp"):
        certificates.verify(plain, [signer.public], timestamp_roots=roots)
    record, other = json.loads(path.read_bytes()), json.loads(plain)
    other["signatures"][0]["timestamp"] = record["signatures"][0]["timestamp"]
    with pytest.raises(VerificationError, match="or of something else"):
        certificates.verify(json.dumps(other).encode(), [signer.public], timestamp_roots=roots)
    token = record["signatures"][0]["timestamp"]
    for place in (100, len(token) // 2, len(token) - 60):
        sign = "A" if token[place] != "A" else "B"
        record["signatures"][0]["timestamp"] = token[:place] + sign + token[place + 1 :]
        with pytest.raises(CertificateError):
            certificates.verify(json.dumps(record).encode(), [signer.public], timestamp_roots=roots)
    # a stranger's signature with a good timestamp proves nothing about the trusted one
    both = stamp(certify(model(), by=[signer.secret, stranger.secret]), tsa)
    mixed = json.loads(both.read_bytes())
    del mixed["signatures"][0]["timestamp"]
    with pytest.raises(VerificationError, match="no trusted signature"):
        certificates.verify(json.dumps(mixed).encode(), [signer.public], timestamp_roots=roots)


def test_an_audit_that_is_later_than_its_timestamp_contradicts_itself(model, certify, signer, tsa):
    path = stamp(certify(model(), at=datetime.now(UTC) + timedelta(days=10)), tsa)
    with pytest.raises(ContradictionError, match="its signature was there at"):
        certificates.verify(path.read_bytes(), [signer.public], timestamp_roots=timestamps.read_roots([tsa.root]))


def texts(decision):
    return " ".join(one.text for one in decision.reasons if one.kind == "refused")


def test_an_alias_that_asks_for_proven_time(registry, model, certify, signer, tsa):
    now = datetime.now(UTC)
    registry.add("credit", model(), certificates=[certify(model(), at=now)])
    roots = timestamps.read_roots([tsa.root])
    policy = AliasPolicy(keys=(signer.public.pem,), timestamp_roots=roots, max_age_days=2)
    registry.set_alias("credit", "production", policy)
    assert "has a timestamp" in texts(evaluate(registry, "credit@1", "production", now=now))
    registry.attach("credit@1", [stamp(certify(model(), at=now + timedelta(seconds=1)), tsa)])
    assert evaluate(registry, "credit@1", "production", now=now).verdict == "pass"
    late = evaluate(registry, "credit@1", "production", now=now + timedelta(days=3))
    assert "too old" in texts(late)
    # a new timestamp does not make an old audit young
    old = stamp(certify(model(2.0), at=now - timedelta(days=9)), tsa)
    registry.add("credit", model(2.0), certificates=[old])
    assert "too old" in texts(evaluate(registry, "credit@2", "production", now=now))


@pytest.mark.parametrize(
    ("answer", "said"),
    [(b"", "gives no timestamp"), (b"<html>", "gives no timestamp"), ("replayed", "timestamp of something else")],
)
def test_an_authority_that_answers_something_else(tsa, answer, said):
    tsa.answer = asking(tsa.url)(b"other") if answer == "replayed" else answer
    with pytest.raises(CertificateError, match=said):
        asking(tsa.url)(b"mine")


@pytest.mark.parametrize(("piece", "said"), [(b" " * 65536, "without end"), (b" ", "takes too long")])
def test_an_authority_that_answers_without_end_or_byte_by_byte(piece, said, monkeypatch):
    class Endless(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(400):
                    self.wfile.write(piece)
                    time.sleep(0.0 if len(piece) > 1 else 0.01)

        def log_message(self, *_) -> None:
            pass

    monkeypatch.setattr(timestamping, "_SECONDS", 0.4 if len(piece) == 1 else 20.0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    with pytest.raises(CertificateError, match=said):
        asking(f"http://127.0.0.1:{server.server_address[1]}/")(b"mine")
    server.shutdown()
    server.server_close()


def test_how_fresh_a_log_is_shows_a_timestamp(registry, model, signer, tsa, authorities, tmp_path, monkeypatch):
    """An older checkpoint, shown to somebody who has never seen a newer one."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(app, ["registry", *map(str, arguments)])

    registry.add("credit", model())
    made = run(
        "checkpoint", "--key", signer.path, "--output", "note", "--timestamp", tsa.url, "--registry", registry.path
    )
    assert made.exit_code == 0, made.stderr
    verify = ("verify-log", "note", "--key", signer.pub)
    fresh = (*verify, "--max-age", "1h", "--timestamp-root", tsa.root)
    assert "stamped at" in run(*fresh).stdout
    assert run(*fresh).exit_code == 0
    assert run(*verify, "--max-age", "1h").exit_code == 2
    assert run(*verify, "--max-age", "1h", "--timestamp-root", authorities[1].root).exit_code == 1
    stamp, note = (tmp_path / "note.tsr").read_bytes(), (tmp_path / "note").read_bytes()
    monkeypatch.setattr("fairkit_cli.registry.log.datetime", Later)
    old = run(*fresh)
    assert (old.exit_code, "longer ago than asked for" in old.stdout) == (3, True)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    registry.add("credit", model(2))
    assert run("checkpoint", "--key", signer.path, "--output", "note", "--registry", registry.path).exit_code == 0
    assert run(*fresh).exit_code == 1  # the stamp of the one before
    (tmp_path / "note.tsr").unlink()
    assert run(*fresh).exit_code == 3
    (tmp_path / "note").write_bytes(note)
    (tmp_path / "note.tsr").write_bytes(stamp)
    assert run(*fresh).exit_code == 0


PLUGIN = '''"""An authority behind a plugin, and what a bad plugin answers."""
import urllib.request

import fairkit
from fairkit.timestamps import TimestampAuthority


class Behind(TimestampAuthority):
    """Asks an authority, honestly or not: behind:WAY:URL."""

    name = "behind"
    opened = 0

    def __init__(self, way, url):
        self.way, self.url = way, url

    @classmethod
    def open(cls, address):
        cls.opened += 1
        _, way, url = address.split(":", 2)
        if way == "closed":
            raise fairkit.ParameterError("behind: there is no authority today")
        if way == "broken":
            raise OSError("no route")
        return cls(way, url)

    def ask(self, signature):
        from rfc3161_client import TimestampRequestBuilder
        from rfc3161_client.base import HashAlgorithm

        if self.way == "raises":
            raise OSError("the line is cut")
        if self.way == "fickle" and signature != b"is anybody there":
            return b"OK"
        if self.way in ("text", "nothing", "large", "garbage", "refusal"):
            refusal = bytes([0x30, 5, 0x30, 3, 2, 1, 2])
            answers = {"text": "OK", "nothing": None, "large": b" " * (2 << 20), "garbage": b"OK", "refusal": refusal}
            return answers[self.way]
        about = b"something else" if self.way == "another" else signature
        kind = HashAlgorithm.SHA512 if self.way == "sha512" else HashAlgorithm.SHA256
        builder = TimestampRequestBuilder().data(about).hash_algorithm(kind)
        query = builder.cert_request(cert_request=self.way != "bare").build()
        request = urllib.request.Request(self.url, query.as_bytes(), {"Content-Type": "application/timestamp-query"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read()


@fairkit.hookimpl
def fairkit_timestamp_authorities():
    return [Behind]
'''


@pytest.fixture
def behind(tmp_path, monkeypatch, tsa):
    """The address of the authority through the plugin, in a way."""
    (tmp_path / "behind.py").write_text(PLUGIN)
    monkeypatch.setenv("FAIRKIT_PLUGINS", str(tmp_path / "behind.py"))
    return lambda way: f"behind:{way}:{tsa.url}"


def test_an_authority_of_a_plugin_is_asked_and_needs_no_plugin_to_be_checked(
    model, certify, signer, behind, tsa, monkeypatch
):
    path = certify(model())
    path.write_bytes(certifying.stamped(path.read_bytes(), asking(behind("honest"))))
    monkeypatch.delenv("FAIRKIT_PLUGINS")
    roots = timestamps.read_roots([tsa.root])
    found = certificates.verify(path.read_bytes(), [signer.public], timestamp_roots=roots)
    assert abs((found.proven_at - datetime.now(UTC)).total_seconds()) < 60


def test_an_authority_of_a_plugin_is_opened_once(behind):
    import sys

    ask = asking(behind("honest"))
    before = sys.modules["fairkit_file_behind"].Behind.opened
    assert ask(b"one") != ask(b"two")
    assert sys.modules["fairkit_file_behind"].Behind.opened == before


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("another", "or gives a timestamp of something else"),
        ("sha512", "or gives a timestamp of something else"),
        ("bare", "without its own certificate"),
        ("refusal", "refuses, or"),
        ("garbage", r"gives no timestamp \(RFC 3161\)"),
        ("text", r"gives no timestamp \(RFC 3161\) but str"),
        ("nothing", "but NoneType"),
        ("large", "but 2097152 bytes"),
        ("raises", "failed while asking for a timestamp .*the line is cut"),
        ("closed", "there is no authority today"),
        ("broken", "failed while opening .*no route"),
    ],
)
def test_what_a_plugin_answers_is_checked_before_anything_is_written(
    way, said, registry, model, signer, behind, tmp_path
):
    with pytest.raises(fairkit.FairkitError, match=said):
        asking(behind(way))(b"mine")
    registry.add("credit", model())
    arguments = ("--key", signer.path, "--output", tmp_path / "note", "--timestamp", behind(way))
    refused = CliRunner().invoke(
        app, ["registry", "checkpoint", *map(str, arguments), "--registry", str(registry.path)]
    )
    assert refused.exit_code == 2
    assert not (tmp_path / "note").exists()
    assert not (tmp_path / "note.tsr").exists()


@pytest.mark.parametrize("address", ["nobody:here", "group:here", "tsa.example", "", "ftp://tsa.example/"])
def test_an_address_of_nobody_is_refused(address):
    with pytest.raises(CertificateError, match="is no address of a time-stamping authority"):
        asking(address)


class Later(datetime):
    """The clock of tomorrow."""

    @classmethod
    def now(cls, zone=None):
        return datetime.now(zone) + timedelta(days=1)


@pytest.mark.long
def test_by_command(loans_model, signer, tsa, authorities, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*arguments):
        return CliRunner().invoke(app, [str(one) for one in arguments])

    roles = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")
    certify = ("certify", loans_model.path, "--data", loans_model.data, *roles, "--key", signer.path)
    gone = run(*certify, "--output", "c.json", "--timestamp", "http://127.0.0.1:1/")
    assert gone.exit_code == 2
    assert "cannot reach the time-stamping authority" in gone.stderr
    assert not (tmp_path / "c.json").exists()
    made = run(*certify, "--output", "c.json", "--timestamp", tsa.url)
    assert made.exit_code == 0, made.stderr
    good = run("verify", "c.json", "--key", signer.pub, "--timestamp-root", tsa.root)
    assert good.exit_code == 0, good.stdout
    (tmp_path / "behind.py").write_text(PLUGIN)
    monkeypatch.setenv("FAIRKIT_PLUGINS", "behind.py")
    for way, code in (("another", 2), ("fickle", 2), ("honest", 0)):
        written = run(*certify, "--output", f"{way}.json", "--timestamp", f"behind:{way}:{tsa.url}")
        assert (written.exit_code, (tmp_path / f"{way}.json").exists()) == (code, code == 0), written.stderr
        lock = ("policy", "lock", "--data", loans_model.data, *roles, "--max", "accuracy_difference:sex=1")
        locked = run(*lock, "--key", signer.path, "--output", f"{way}.lock", "--timestamp", f"behind:{way}:{tsa.url}")
        assert (locked.exit_code, (tmp_path / f"{way}.lock").exists()) == (code, code == 0), locked.stderr
    monkeypatch.delenv("FAIRKIT_PLUGINS")
    numbers = [certificates.read((tmp_path / name).read_bytes()).sequence for name in ("c.json", "honest.json")]
    assert [one[0].number for one in numbers] == [1, 2]  # what was refused took none
    through = run("verify", "honest.json", "--key", signer.pub, "--timestamp-root", tsa.root)
    assert "signed no later than" in through.stdout
    assert "signed no later than" in good.stdout
    assert run("verify", "c.json", "--key", signer.pub, "--timestamp-root", authorities[1].root).exit_code == 1
    assert run("verify", "c.json", "--key", signer.pub, "--timestamp-root", signer.pub).exit_code == 2
    trusting = ("report", "c.json", "--key", signer.pub)
    unasked = run(*trusting)
    assert unasked.exit_code == 0
    assert "carries a timestamp, which was not checked" in unasked.stdout
    proven = run(*trusting, "--timestamp-root", tsa.root)
    assert proven.exit_code == 0, proven.stderr
    assert "A timestamp proves that the signature was there at" in proven.stdout
    assert "the signature proven for" in proven.stdout
    told = run(*trusting, "--timestamp-root", tsa.root, "--pack", "eu-ai-act", "--format", "markdown")
    assert "signature was there, proven by a timestamp, at" in told.stdout
    other = run(*trusting, "--timestamp-root", authorities[1].root)
    assert other.exit_code == 1
    assert "DOES NOT HOLD" in other.stdout
    assert run("report", "c.json", "--timestamp-root", tsa.root).exit_code == 2
