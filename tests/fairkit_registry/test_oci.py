"""OCI registries: push, pull, attach and verify against a real one, and one that misbehaves in front of it."""

from __future__ import annotations

import base64
import hashlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairkit_cli.main import app
from fairkit_registry.errors import ArchiveError, RegistryError, VerificationError
from fairkit_registry.evidence.signers import new_key_pair
from fairkit_registry.exchange import pushing, remote
from fairkit_registry.oci import address, blobs, credentials
from fairkit_registry.oci.client import Client
from fairkit_registry.policies import AliasPolicy
from fairkit_registry.promotion.run import promote
from fairkit_registry.store.registry import Registry

pytest.importorskip("httpx", reason="httpx is not installed (extra exchange)")


def start(folder: Path) -> tuple[subprocess.Popen, str]:
    """Start a registry on a port that the system chooses; it says which in its log."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed")
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": {"addr": "127.0.0.1:0", "secret": "for tests"},
    }
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    process = subprocess.Popen(
        [program, "serve", str(folder / "config.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        found = re.search(r"listening on (127\.0\.0\.1:\d+)", line)
        if found:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, found[1]
    raise AssertionError("docker-registry does not say where it listens")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    process, host = start(tmp_path_factory.mktemp("oci"))
    yield host
    process.kill()
    process.wait()
    process.stderr.close()


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Nobody's logins, and a memory of this test's own."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def place(server, request):
    name = hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    return address.parse(f"oci+http://{server}/team/{name}:3")


@pytest.fixture
def credit(registry, model, certify, signer):
    registry.add("credit", model(), certificates=[certify(model())], tags=["pilot"], notes="first")
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,)))
    return registry


@pytest.fixture
def there(tmp_path):
    with Registry(tmp_path / "there", create=True) as store:
        yield store


class Proxy:
    """Stands before the real registry, and changes what a test asks it to change."""

    def __init__(self, target: str) -> None:
        self.seen: list[tuple[str, str]] = []
        self.meddle = lambda handler, body: False
        self.change = lambda handler, status, headers, body: (status, headers, body)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                proxy.seen.append((self.command, self.path))
                if proxy.meddle(self, body):
                    return
                self.send(*proxy.change(self, *self.forward(body)))

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = answer  # noqa: N815

            def forward(self, body: bytes):
                there = http.client.HTTPConnection(target)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("authorization", "host")}
                there.request(self.command, self.path, body, headers | {"Host": self.headers["host"]})
                answer = there.getresponse()
                found = answer.status, dict(answer.getheaders()), answer.read()
                there.close()
                return found

            def send(self, status: int, headers: dict, body: bytes) -> None:
                self.send_response(status)
                for key, value in headers.items():
                    if key.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                        self.send_header(key, value)
                length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def hang_up(self) -> bool:
                self.close_connection = True
                return True

            def log_message(self, *_) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def proxy(server):
    found = Proxy(server)
    yield found
    found.server.shutdown()
    found.server.server_close()


def through(proxy, place):
    return address.parse(str(place).replace(place.host, proxy.host))


def same(a, b):
    return (a.model, a.certificates, a.tags, a.notes, a.filename) == (
        b.model,
        b.certificates,
        b.tags,
        b.notes,
        b.filename,
    )


def test_a_version_travels_with_its_evidence_and_is_promoted_there(credit, there, place, signer):
    done = pushing.push(credit, "credit@1", place)
    assert done.referrers == 1
    assert done.sent > 0
    again = pushing.push(credit, "credit@1", place)
    assert (again.digest, again.sent) == (done.digest, 0)
    pulled = remote.pull(there, place, trusted=[signer.public])
    assert pulled.new
    assert pulled.version.reference == "credit@1"
    assert same(pulled.version, credit.version("credit@1"))
    assert not remote.pull(there, place, trusted=[signer.public]).new
    there.set_alias("credit", "production", credit.alias("credit", "production").policy)
    assert promote(there, "credit@1", "production").verdict == "pass"
    # the layer is the model as it is: its digest is the certificate's subject
    with Client(place) as client:
        (layer,) = client.manifest("3").content["layers"]
    assert layer["digest"] == f"sha256:{pulled.version.model}"


def test_pushing_twice_uploads_nothing(credit, place, proxy):
    where = through(proxy, place)
    pushing.push(credit, "credit@1", where)
    proxy.seen.clear()
    pushing.push(credit, "credit@1", where)
    assert {method for method, _ in proxy.seen} <= {"HEAD", "GET", "PUT"}
    assert not [path for method, path in proxy.seen if method == "PUT" and "/blobs/" in path]


def test_two_attaches_are_one_entry_and_what_is_not_about_the_model_is_refused(
    credit, place, certify, model, signer, tmp_path
):
    pushing.push(credit, "credit@1", place)
    second = certify(model(), verdict="fail")
    pushing.attach(place, [second])
    pushing.attach(place, [second])
    found = remote.look(place)
    assert len(found.certificates) == 2
    assert len(found.trusted([signer.public])[0]) == 2
    with pytest.raises(Exception, match="about another model"):
        pushing.attach(place, [certify(model(2.0))])
    assert len(remote.look(place).certificates) == 2


def test_a_stranger_who_can_push_adds_nothing_that_counts(credit, there, place, certify, model, signer, stranger):
    pushing.push(credit, "credit@1", place)
    pushing.attach(place, [certify(model(), by=[stranger.secret], verdict="fail")])
    good, refused = remote.look(place).trusted([signer.public])
    assert (len(good), len(refused)) == (1, 1)
    assert len(remote.pull(there, place, trusted=[signer.public]).version.certificates) == 1
    nobody = new_key_pair(there.path.parent / "nobody")
    with Registry(there.path.parent / "new", create=True) as new, pytest.raises(VerificationError):
        remote.pull(new, place, trusted=[nobody])


def files_of(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


def test_a_flipped_byte_in_a_remote_blob_is_refused_and_leaves_nothing(credit, there, place, proxy, signer):
    pushing.push(credit, "credit@1", place)

    def flip(handler, status, headers, body):
        if handler.command == "GET" and "/blobs/" in handler.path and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        return status, headers, body

    proxy.change = flip
    for act in (lambda: remote.pull(there, through(proxy, place)), lambda: remote.look(through(proxy, place))):
        with pytest.raises(ArchiveError, match="does not have this digest"):
            act()
    assert there.models() == []
    assert files_of(there.path) == []


def test_a_manifest_or_a_list_that_was_exchanged_is_refused(credit, there, place, proxy):
    done = pushing.push(credit, "credit@1", place)

    def other(handler, status, headers, body):
        if handler.command == "GET" and "/manifests/" in handler.path and status == 200:
            body = body.replace(b'"schemaVersion":2', b'"schemaVersion":2,"x":1')
        return status, headers, body

    proxy.change = other
    with pytest.raises(ArchiveError, match="does not have this digest"):
        remote.pull(there, through(proxy, place.at(done.digest)))
    # a referrer that refers to something else
    with Client(place) as client:
        listed = client.referrers(done.digest)
        entry = listed[0] | {"digest": done.digest}
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
        client.push_manifest(index, done.digest.replace(":", "-"))
    with pytest.raises(ArchiveError, match="the list was changed"):
        remote.pull(there, place)
    assert there.models() == []


@pytest.mark.long
def test_a_registry_that_hangs_up_is_gone_on_with(credit, there, place, proxy, monkeypatch, model, certify):
    monkeypatch.setattr(blobs, "_PIECE", 200)  # several pieces of a small model
    hung = {"PATCH": 0, "GET": 0}

    def hang_up(handler, body):
        if handler.command == "PATCH" and hung["PATCH"] < 2:
            hung["PATCH"] += 1
            if hung["PATCH"] == 2:
                handler.forward(body)  # it arrived, and the answer is lost
            return handler.hang_up()
        return False

    proxy.meddle = hang_up
    credit.add("credit", model(3.0, width=400), certificates=[certify(model(3.0, width=400))])
    where = through(proxy, place)
    pushing.push(credit, "credit@2", where)
    assert hung["PATCH"] == 2

    def half(handler, status, headers, body):
        if (
            handler.command == "GET"
            and "/blobs/" in handler.path
            and not handler.headers.get("range")
            and len(body) > 1000
        ):
            hung["GET"] += 1
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body[:300])
            handler.wfile.flush()
            handler.connection.close()
            raise ConnectionError
        return status, headers, body

    proxy.change = half
    monkeypatch.setattr(ThreadingHTTPServer, "handle_error", lambda *_: None)
    assert remote.pull(there, where).version.model == credit.version("credit@2").model
    assert hung["GET"] >= 1


def grant(scopes: set[str]) -> str:
    return base64.b64encode(" ".join(sorted(scopes)).encode()).decode()


@pytest.mark.long
def test_a_token_server_that_grants_only_what_was_asked(credit, there, place, proxy, tmp_path):
    """The first token, from a HEAD, may pull; a POST needs another one."""
    where = through(proxy, place)
    (tmp_path / "docker").mkdir()
    login = base64.b64encode(b"alice:secret").decode()
    (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {where.host: {"auth": login}}}))
    asked = []

    def guard(handler, body):
        if handler.path.startswith("/token"):
            if handler.headers.get("authorization") != f"Basic {login}":
                handler.send(401, {}, b"")
                return True
            scope = re.search(r"scope=([^&]*)", handler.path)[1]
            asked.append(scope)
            handler.send(200, {}, json.dumps({"token": grant({scope})}).encode())
            return True
        needed = "pull" if handler.command in ("GET", "HEAD") else "pull,push"
        scope = f"repository:{where.repository}:{needed}"
        import urllib.parse

        token = handler.headers.get("authorization", "").removeprefix("Bearer ")
        granted = urllib.parse.unquote(base64.b64decode(token).decode()).split() if token else []
        if any(one == scope or one == scope.replace(":pull", ":pull,push") for one in granted):
            return False
        challenge = f'Bearer realm="http://{where.host}/token",service="tests",scope="{scope}"'
        handler.send(401, {"WWW-Authenticate": challenge}, b"")
        return True

    proxy.meddle = guard
    pushing.push(credit, "credit@1", where)
    assert len(asked) > 1
    assert remote.pull(there, where).new
    (tmp_path / "docker" / "config.json").write_text("{}")
    with pytest.raises(RegistryError, match="asks for a login: run docker login"):
        remote.look(where)


@pytest.mark.long
def test_basic_logins_and_helpers(credit, place, proxy, tmp_path, monkeypatch):
    where = through(proxy, place)
    wanted = "Basic " + base64.b64encode(b"bob:pass:word").decode()

    def guard(handler, body):
        if handler.headers.get("authorization") == wanted:
            return False
        handler.send(401, {"WWW-Authenticate": 'Basic realm="tests"'}, b"")
        return True

    proxy.meddle = guard
    (tmp_path / "docker").mkdir()
    (tmp_path / "bin").mkdir()
    helper = tmp_path / "bin" / "docker-credential-tests"
    helper.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"if sys.stdin.read() != {where.host!r}: sys.exit('credentials not found')\n"
        "print(json.dumps({'Username': 'bob', 'Secret': 'pass:word'}))\n"
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    config = tmp_path / "docker" / "config.json"
    for record in ({"credHelpers": {where.host: "tests"}}, {"credsStore": "tests"}):
        config.write_text(json.dumps(record))
        pushing.push(credit, "credit@1", where)
    config.write_text(json.dumps({"credHelpers": {where.host: "../evil"}}))
    with pytest.raises(RegistryError, match="are not understood"):
        remote.look(where)
    config.write_text(json.dumps({"auths": {where.host: {"auth": base64.b64encode(b"bob:wrong").decode()}}}))
    with pytest.raises(RegistryError, match="the login was refused"):
        remote.look(where)
    assert "wrong" not in repr(credentials.find(where.host))


def test_logins_are_not_sent_elsewhere(credit, there, place, proxy, server, tmp_path):
    """A blob that is kept on another host is fetched from there, without the login."""
    where = through(proxy, place)
    pushing.push(credit, "credit@1", place)
    other = Proxy(server)
    told = []

    def redirect(handler, status, headers, body):
        if handler.command == "GET" and "/blobs/" in handler.path:
            return 307, {"Location": f"http://{other.host}{handler.path}"}, b""
        return status, headers, body

    def guard(handler, body):
        if handler.headers.get("authorization"):
            return False
        handler.send(401, {"WWW-Authenticate": 'Basic realm="tests"'}, b"")
        return True

    proxy.change, proxy.meddle = redirect, guard
    other.meddle = lambda handler, body: told.append(handler.headers.get("authorization")) or False
    (tmp_path / "docker").mkdir()
    auth = base64.b64encode(b"bob:secret").decode()
    (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {where.host: {"auth": auth}}}))
    assert remote.pull(there, where).new
    assert told
    assert set(told) == {None}
    other.server.shutdown()
    other.server.server_close()


def login_for(host, tmp_path):
    auth = base64.b64encode(b"bob:secret").decode()
    (tmp_path / "docker").mkdir(exist_ok=True)
    (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))


@pytest.mark.long
@pytest.mark.parametrize("way", ["redirect", "location", "link"])
@pytest.mark.parametrize("kind", ["Basic", "Bearer"])
def test_a_challenge_from_elsewhere_is_never_answered(way, kind, credit, there, place, proxy, server, tmp_path):
    """Another host asks for a login, or names a token server of its own, after the registry led to it."""
    where = through(proxy, place)
    pushing.push(credit, "credit@1", place)
    login_for(where.host, tmp_path)
    other = Proxy(server)
    seen = []

    def challenge(handler, body):
        seen.append(handler.headers.get("authorization"))
        realm = "tests" if kind == "Basic" else f"http://{other.host}/token"
        handler.send(401, {"WWW-Authenticate": f'{kind} realm="{realm}",service="x"'}, b"")
        return True

    def lead(handler, status, headers, body):
        away = f"http://{other.host}{handler.path}"
        if way == "redirect" and handler.command == "GET" and "/blobs/" in handler.path:
            return 307, {"Location": away}, b""
        if way == "location" and handler.command == "POST":
            return 202, {"Location": away}, b""
        if way == "link" and "/referrers/" in handler.path:
            return 200, {"Link": f'<{away}>; rel="next"'}, b'{"manifests": []}'
        return status, headers, body

    proxy.change, other.meddle = lead, challenge
    with pytest.raises((RegistryError, ArchiveError), match=r"logins are answered to|not followed there"):
        pushing.push(credit, "credit@1", replace(where, repository=f"{where.repository}/b")) if (
            way == "location"
        ) else remote.pull(there, where)
    assert set(seen) <= {None}
    assert seen or way == "link"
    other.server.shutdown()
    other.server.server_close()


def test_a_second_token_server_is_refused(place, proxy, server, tmp_path):
    where = through(proxy, place)
    login_for(where.host, tmp_path)
    realms = itertools.chain(["one", "one"], itertools.repeat("two"))

    def guard(handler, body):
        if handler.path.startswith("/token"):
            handler.send(200, {}, b'{"token": "x"}')
            return True
        # the port tells the servers apart: both names are this machine's
        realm = f"http://{where.host}/token" if next(realms) == "one" else f"http://{server}/token"
        handler.send(401, {"WWW-Authenticate": f'Bearer realm="{realm}",scope="{handler.command}"'}, b"")
        return True

    proxy.meddle = guard
    with Client(where) as client:
        for digest in ("sha256:" + "0" * 64,) * 2:
            with pytest.raises(RegistryError) as caught:
                client.has_blob(digest)
    assert "as its token server after" in str(caught.value)


def test_a_login_is_not_sent_without_encryption_beyond_this_machine(place, proxy, tmp_path, monkeypatch):
    where = through(proxy, place)
    login_for(where.host, tmp_path)
    proxy.meddle = lambda handler, body: handler.send(401, {"WWW-Authenticate": 'Basic realm="tests"'}, b"") or True
    monkeypatch.setattr("fairkit.sources.reach.is_loopback", lambda host: False)
    with pytest.raises(RegistryError, match="is not sent without encryption"):
        remote.look(where)
    assert [path for _, path in proxy.seen] == [f"/v2/{where.repository}/manifests/3"]


def endless(handler, piece=b" " * 65536, pause=0.0):
    """Send a body that does not end; count its bytes."""
    import time

    handler.close_connection = True
    handler.send_response(handler.status)
    handler.end_headers()
    sent = 0
    try:
        while sent < 64 << 20:
            handler.wfile.write(piece)
            sent += len(piece)
            time.sleep(pause)
    except OSError:
        pass
    return sent


@pytest.mark.long
@pytest.mark.parametrize("what", ["referrers", "token", "error", "manifest"])
def test_no_answer_is_read_without_end(what, credit, there, place, proxy, tmp_path):
    where = through(proxy, place)
    pushing.push(credit, "credit@1", place)
    sent = []

    def meddle(handler, body):
        handler.status = 500 if what == "error" else 200
        hit = {"referrers": "/referrers/", "token": "/token", "error": "/blobs/", "manifest": "/manifests/"}[
            what
        ] in handler.path
        if hit:
            sent.append(endless(handler))
            return True
        if what == "token":
            realm = f"http://{where.host}/token"
            handler.send(401, {"WWW-Authenticate": f'Bearer realm="{realm}"'}, b"")
            return True
        return False

    proxy.meddle = meddle
    with pytest.raises(RegistryError, match=r"more than is read|status 500"):
        remote.pull(there, where)
    while not sent:
        pass
    assert max(sent) < 32 << 20
    assert there.models() == []


@pytest.mark.parametrize("what", ["headers", "body"])
def test_an_answer_that_trickles_is_given_up(what, place, proxy, monkeypatch):
    """Each byte comes in time, and the whole never does."""
    import time

    where = through(proxy, place)
    monkeypatch.setattr("fairkit_registry.oci.transport.SECONDS", 0.4)

    def meddle(handler, body):
        handler.status = 200
        if what == "headers":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
            for _ in range(100):
                try:
                    handler.wfile.write(b"X-A: b\r\n")
                except OSError:
                    break
                time.sleep(0.02)
            return handler.hang_up()
        endless(handler, b" ", 0.02)
        return True

    proxy.meddle = meddle
    start = time.monotonic()
    with pytest.raises(RegistryError, match="takes too long"):
        remote.look(where)
    assert time.monotonic() - start < 1.5


def test_a_registry_that_is_busy_for_long_is_an_error_at_once(place, proxy):
    where = through(proxy, place)
    proxy.meddle = lambda handler, body: handler.send(503, {"Retry-After": "3600"}, b"") or True
    with pytest.raises(RegistryError, match="left alone for 3,600 s"):
        remote.look(where)
    assert len(proxy.seen) == 1


def test_lists_without_end_are_given_up(place, proxy, monkeypatch):
    where = through(proxy, place)
    monkeypatch.setattr("fairkit_registry.oci.client.MOST_PAGES", 3)
    body = json.dumps({"manifests": [], "tags": []}).encode()
    proxy.meddle = lambda handler, _: handler.send(200, {"Link": f'<{handler.path}>; rel="next"'}, body) or True
    with Client(where) as client:
        with pytest.raises(ArchiveError, match="more than 3 pages"):
            client.referrers("sha256:" + "0" * 64)
        with pytest.raises(ArchiveError, match="more than 3 pages"):
            client.tags()
    assert len(proxy.seen) == 6


def test_unreachable_missing_and_strange_addresses_are_one_message(server, there, proxy):
    with pytest.raises(RegistryError, match="cannot reach the registry"):
        remote.look(address.parse("oci+http://127.0.0.1:1/team/credit:3"))
    with pytest.raises(RegistryError, match="has no 3"):
        remote.look(address.parse(f"oci+http://{server}/team/nothing:3"))
    with pytest.raises(RegistryError):  # it does not speak https
        remote.look(address.parse(f"oci://{server}/team/nothing:3"))
    for text in ("oci://", "oci://host", "oci://Host/UPPER:1", "oci://h/a:b:c", "oci://h/../x:1", "https://h/a:1"):
        with pytest.raises(RegistryError, match="no address in an OCI registry"):
            address.parse(text)
    proxy.meddle = lambda handler, body: handler.send(200, {}, b"<html>") or True
    with pytest.raises(ArchiveError, match="cannot be read"):
        remote.look(address.parse(f"oci+http://{proxy.host}/team/x:1"))
    assert there.models() == []


def test_what_skopeo_copied_from_an_archive_can_be_pulled(credit, there, place, tmp_path, signer):
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")
    from fairkit_registry.exchange.archive import export

    export(credit, ["credit@1"], tmp_path / "all.tar")
    (tmp_path / "policy.json").write_text('{"default":[{"type":"insecureAcceptAnything"}]}')
    command = ["skopeo", "--policy", "policy.json", "copy", "--dest-tls-verify=false", "oci-archive:all.tar:credit-1"]
    target = f"docker://{place.host}/{place.repository}:3"
    subprocess.run([*command, target], cwd=tmp_path, check=True, capture_output=True)
    pulled = remote.pull(there, place, trusted=[signer.public])
    assert same(pulled.version, credit.version("credit@1"))


def test_revocations_travel_and_are_heeded(credit, there, place, signer):
    from datetime import UTC, datetime

    from fairkit_registry.evidence import certificate, revocations

    version = credit.version("credit@1")
    found = certificate.read(credit.certificate(version.certificates[0]))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    one = revocations.Entry(kind="certificate", sha256=found.statement_sha256, reason="mislabelled", at=at)
    raw = revocations.issue(signer.secret, [one], previous=None, next_update=datetime(2036, 1, 1, tzinfo=UTC))
    credit.revoke([("list", raw)], [signer.public])
    assert pushing.push(credit, "credit@1", place).referrers == 2
    good, refused = remote.look(place).trusted([signer.public])
    assert good == []
    assert "mislabelled" in refused[0]
    with pytest.raises(VerificationError, match="mislabelled"):
        remote.pull(there, place, trusted=[signer.public])
    assert there.models() == []


@pytest.mark.long
def test_by_command(credit, place, signer, tmp_path, monkeypatch, loans_model):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(app, [str(one) for one in arguments])

    pushed = run("registry", "push", "credit@production", place, "--registry", credit.path)
    assert pushed.exit_code == 2  # it points to nothing yet
    pushed = run("registry", "push", "credit@1", place, "--registry", credit.path)
    assert pushed.exit_code == 0, pushed.stderr
    for verify in (("verify",), ("registry", "verify")):
        good = run(*verify, place, "--key", signer.pub)
        assert good.exit_code == 0, good.stdout + good.stderr
        assert "about this model" in good.stdout
    assert run("verify", place, "--key", signer.pub, "--data", "x.csv").exit_code == 2
    pulled = run("registry", "pull", place, "--key", signer.pub, "--registry", "new", "--format", "json")
    assert json.loads(pulled.stdout)["new"] is True
    assert run("registry", "pull", "oci+http://127.0.0.1:1/a:1", "--registry", "other").exit_code == 2
    assert not Path("other").exists()
    shutil.copy(loans_model.path, "loans.onnx")
    assert run("registry", "add", "loans", "loans.onnx", "--registry", credit.path).exit_code == 0
    loans = str(replace(place, tag="loans"))
    assert run("registry", "push", "loans@1", loans, "--registry", credit.path).exit_code == 0
    roles = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")
    for _ in range(2):  # the second time from the cache
        audited = run("audit", loans, "--data", loans_model.data, *roles, "--format", "json")
        assert audited.exit_code == 0, audited.stderr
        digest = hashlib.sha256(loans_model.path.read_bytes()).hexdigest()
        assert json.loads(audited.stdout)["model"]["sha256"] == digest


def test_an_oci_registry_in_place_of_a_folder_is_only_read(credit, place, signer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where = f"oci+http://{place.host}/{place.repository}"
    for tag in ("1", "2", "10", "production"):
        pushing.push(credit, "credit@1", address.parse(f"{where}/credit:{tag}"))

    def run(*arguments):
        return CliRunner().invoke(app, ["registry", *map(str, arguments), "--registry", where])

    assert json.loads(run("list", "--format", "json").stdout)["models"] == ["credit"]
    listed = run("list", "credit", "--format", "json")
    assert json.loads(listed.stdout)["tags"] == ["10", "2", "1", "production"]
    shown = json.loads(run("show", "credit", "--format", "json").stdout)
    assert shown["address"].endswith("/credit:10")
    assert shown["sha256"] == credit.version("credit@1").model
    assert [one["verified"] for one in shown["evidence"]] == [False]
    assert "NOT verified" in run("show", "credit@production").stdout
    assert run("show", "credit", "--format", "markdown").exit_code == 2
    good = run("verify", "credit@2", "--key", signer.pub)
    assert good.exit_code == 0, good.stdout + good.stderr
    assert run("verify", "credit@7", "--key", signer.pub).exit_code == 2
    for arguments in (
        ("add", "credit", "m.onnx"),
        ("log",),
        ("alias", "credit"),
        ("gc",),
        ("promote", "credit@1", "x"),
    ):
        refused = run(*arguments)
        assert refused.exit_code == 2
        assert "is only read" in " ".join(refused.stderr.split()), refused.stderr
    assert not (tmp_path / "oci+http:").exists()


KILLED = """
import os, sys
from pathlib import Path
from fairkit_registry.exchange import pushing, remote
from fairkit_registry.oci import address, transport
from fairkit_registry.store.registry import Registry

left = int(sys.argv[4])
request = transport.Transport.request

def counted(*arguments, **named):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), 9)
    return request(*arguments, **named)

transport.Transport.request = counted
with Registry(Path(sys.argv[2]), create=True) as store:
    where = address.parse(sys.argv[3])
    pushing.push(store, "credit@1", where) if sys.argv[1] == "push" else remote.pull(store, where)
"""


@pytest.mark.long
@pytest.mark.parametrize("what", ["push", "pull"])
def test_kill_9_leaves_nothing_half_visible(what, credit, place, tmp_path, signer):
    """The process is killed before its first request, its second, and so on, until it comes through."""
    if what == "pull":
        pushing.push(credit, "credit@1", place)
    folder = credit.path if what == "push" else tmp_path / "there"
    for number in range(0, 100, 2):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, what, str(folder), str(place), str(number)], capture_output=True, check=False
        )
        killed = done.returncode == -signal.SIGKILL
        assert killed or done.returncode == 0, done.stderr
        if what == "push":
            with Client(place) as client:
                tagged = client.find_manifest("3") is not None
            assert tagged == (not killed) or len(remote.look(place).trusted([signer.public])[0]) == 1
        else:
            with Registry(folder) as there:
                models = there.models()
                assert bool(models) == (not killed)
                assert not killed or files_of(there.path / "nothing") == []
        if not killed:
            break
    assert not killed
    assert number > 2
