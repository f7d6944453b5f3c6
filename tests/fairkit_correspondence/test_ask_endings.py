"""How a run ends that does not end well: interrupted, refused, put off, answered by something else."""

from __future__ import annotations

import contextlib
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pyarrow.parquet as pq
import pytest

from fairkit.errors import DataError, ModelError, ParameterError
from fairkit.sources.address import TOKEN, check_address, token_for, without_token
from fairkit_correspondence.asking import Asker
from fairkit_correspondence.client import Client, Server, Store
from fairkit_correspondence.plan import read_plan
from fairkit_correspondence.requests import requests_of

from .fake_server import Behaviour, FakeServer
from .plans import write_plan


class Turning(FakeServer):
    """A server that answers otherwise after some calls."""

    after, turned = 0, (500, {"error": {"message": "fell over"}}, None)

    def answer(self, body):
        found = super().answer(body)
        return self.turned if self.calls > self.after else found


def asked(folder, server, **more):
    """Ask a small plan; return its outcome and how long the client slept."""
    plan = read_plan(write_plan(folder, documents=30, names=30))
    slept = []
    with (
        closing(Client(Server(url=server.url, model="m"))) as client,
        closing(Store(folder / "a.sqlite", plan.digest, "m")) as store,
    ):
        return Asker(plan, client, store, budget=5.0, sleep=slept.append, **more).run()


@pytest.mark.long
def test_twenty_errors_in_a_row_end_it_and_the_plan_goes_on(tmp_path):
    seen = []
    server = Turning(Behaviour(gap=0.1))
    server.after = 60
    with server:
        with pytest.raises(ModelError, match=r"failed 2\d times in a row: error 500: fell over"):
            asked(tmp_path, server, progress=lambda *done, **values: seen.append((*done, values["spent"])))
        assert seen[-1][0] == "asking"
        assert seen[-1][1] < seen[-1][2] == 240
        assert 0 < seen[0][3] < seen[-1][3]
        before, server.after = server.calls, 10_000
        assert asked(tmp_path, server).pending == 0
    # what was answered is not asked again: the probe, twenty sentinels and some answers came before the errors
    assert server.calls - before < 240 - 30 + 2 * 20


@pytest.mark.long
@pytest.mark.parametrize(
    ("turned", "message"),
    [
        ((429, {}, {"retry-after": "4000"}), "asks to be left alone for 4000 s; run the same command again then"),
        ((429, {}, {"retry-after-ms": "4000000"}), "asks to be left alone for 4000 s"),
        ((401, {"error": "who?"}, None), "refuses access \\(401\\); put a token into the variable FAIRKIT"),
        ((200, {"hello": 1}, None), "failed 2\\d times in a row: JSON without choices"),
    ],
)  # fmt: skip
def test_a_server_that_wants_no_more_is_one_sentence(turned, message, tmp_path):
    server = Turning(Behaviour())
    server.after, server.turned = 60, turned
    with server, pytest.raises(ModelError, match=message) as raised:
        asked(tmp_path, server)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("turned", "message"),
    [
        ((200, {"hello": 1}, None), "answers with JSON without choices: it serves no chat completions of 'm'"),
        ((200, {"choices": []}, None), "answers with JSON without choices"),
        ((200, b"<html>", None), "answers with something that is no chat completion"),
        ((302, {}, {"location": "http://198.51.100.7/v1"}), "a redirect, which is not followed"),
    ],
)
def test_what_is_no_such_server_is_known_by_the_probe(turned, message, tmp_path):
    server = Turning(Behaviour())
    server.turned = turned
    with server, pytest.raises(ModelError, match=message) as raised:
        asked(tmp_path, server)
    assert server.calls <= 4
    assert "\n" not in str(raised.value)


class Halves(FakeServer):
    """A server whose every text ends with half a surrogate pair."""

    def answer(self, body):
        status, record, more = super().answer(body)
        record["model"] += "\ud83d"
        record["choices"][0]["message"]["content"] += " \udc00"
        return status, record, more


def test_half_a_surrogate_pair_in_a_reply_is_stored_as_the_replacement_character(tmp_path):
    plan = read_plan(write_plan(tmp_path, documents=4, names=4, asking="pilot = true"))
    with (
        Halves(Behaviour(gap=0.1)) as server,
        closing(Client(Server(url=server.url, model="m"))) as client,
        closing(Store(tmp_path / "a.sqlite", plan.digest, "m")) as store,
    ):
        outcome = Asker(plan, client, store, budget=5.0, sleep=lambda _: None).run()
        assert (outcome.pending, outcome.stopped) == (0, None)
        kept = [record for _, record, _ in store.records()]
    pq.write_table(outcome.table, tmp_path / "answers.parquet")
    assert {one["stated_model"] for one in kept} == {"fake-1\ufffd"}
    assert {one["text"] for one in kept} <= {"Yes \ufffd", "No \ufffd"}


def test_headers_that_never_end_are_cut_off_for_each_thread():
    ended = threading.Event()

    def trickle(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not ended.wait(0.05):
                connection.sendall(b"X-More: 1\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(4) as pool:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        with closing(Client(Server(url=url, model="m", timeout=0.4))) as client:
            replies = [pool.submit(client.ask, [{"role": "user", "content": "?"}], {}) for _ in range(2)]
            serving = [pool.submit(trickle, listening.accept()[0]) for _ in range(2)]
            try:
                found = [one.result(timeout=30) for one in replies]
            finally:
                ended.set()
        assert [one.exception() for one in serving] == [None, None]
    assert {(one.reason, one.paid, one.again) for one in found} == {("no whole reply within 0.4 s", True, True)}


def test_a_full_disk_is_one_message_and_what_was_answered_is_kept(tmp_path):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(Store(tmp_path / "a.sqlite", "p", "m")) as store:
        store.settle(store.reserve(1.0, None), "first", 0, {"text": "Yes"}, 1.0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        try:
            with pytest.raises(DataError, match=r"a\.sqlite cannot be written \(.*free some space") as raised:  # noqa: PT012 -- some round is the last one
                for number in range(1, 1_000):
                    store.settle(store.reserve(1.0, None), str(number), number, {"text": "x" * 4_000}, 1.0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "rollback" not in str(raised.value)
        before = len(store.keys())
        assert before > 1
        store.settle(store.reserve(1.0, None), "last", 1_000, {"text": "Yes"}, 1.0)
        assert len(store.keys()) == before + 1


@pytest.mark.long
def test_other_weights_behind_the_same_name_stop_it(tmp_path):
    """llama.cpp repeats any model's name; what it says about its weights is compared."""
    with FakeServer(Behaviour()) as server:

        def weights(handler):
            name = "first.gguf" if server.calls < 100 else "second.gguf"
            handler._send(200, {"model_path": name} if handler.path == "/props" else {})

        server._server.RequestHandlerClass.do_GET = weights
        outcome = asked(tmp_path, server)
    assert outcome.stopped.startswith("the served model changed: properties was")
    assert "second.gguf" in outcome.stopped


@pytest.mark.long
def test_an_interrupt_loses_nothing_and_the_same_command_goes_on(tmp_path):
    path = write_plan(tmp_path, documents=60, names=30)
    with FakeServer(Behaviour(gap=0.1)) as server:
        command = [
            sys.executable, "-c",
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from fairkit_cli.main import run; run()",
            "ask", str(path), "--endpoint", server.url, "--model", "m", "--budget", "1", "--output",
            str(tmp_path / "answers.parquet"),
        ]  # fmt: skip
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 120
        while server.calls < 100 and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 130, errors
        assert "Traceback" not in errors
        assert not (tmp_path / "answers.parquet").exists()
        with closing(sqlite3.connect(tmp_path / "answers.parquet.sqlite")) as kept:
            count = kept.execute("SELECT COUNT(*) FROM answers WHERE number >= 0").fetchone()[0]
        assert count > 50
        before = server.calls
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
        requests = len(requests_of(read_plan(path)))
        assert done.returncode in (0, 1, 3), done.stderr
        # what has an answer is not asked again: the rest, and twenty sentinels at either end
        assert server.calls - before == requests - count + 2 * 20
    assert pq.read_table(tmp_path / "answers.parquet").num_rows == requests


ODD = {
    "http://u:secret@h/v1": "holds a user",
    "http://secret@h/v1": "holds a user",
    "http://h/v1?key=secret": "holds a user",
    "http://h/v1?secret": "holds a user",
    "http://h/v1#secret": "holds a user",
    "http://u:secret@h:port/v1": "cannot be read",
    "http://[secret/v1": "cannot be read",
    "ftp://h/v1": "is no address of an endpoint; write http://host",
    "h/v1": "is no address of an endpoint; write http://host",
    "http:///v1": "is no address of an endpoint",
}


@pytest.mark.parametrize("url", ODD)
def test_an_address_that_cannot_be_used_is_refused_and_its_secrets_are_not_shown(url):
    with pytest.raises(ParameterError, match=ODD[url]) as raised:
        check_address(url, "http://host:port/v1", queries=("api-version",))
    assert "secret" not in str(raised.value)


def test_addresses_may_have_a_version_where_they_are_said_to():
    check_address("https://h/v1?api-version=2024-10-21", "https://h/v1", queries=("api-version",))
    with pytest.raises(ParameterError, match="holds a user"):
        check_address("https://h/v1?api-version=2024-10-21", "https://h/v1")
    server = Server(url="https://h/v1/?api-version=7", model="m")
    assert server.at("chat/completions") == "https://h/v1/chat/completions?api-version=7"


def test_the_token_goes_to_safe_addresses_and_into_no_message(monkeypatch):
    monkeypatch.delenv(TOKEN, raising=False)
    assert token_for("http://far.example/v1") == ""
    monkeypatch.setenv(TOKEN, " tok-123 ")
    assert token_for("https://far.example/v1") == token_for("http://127.0.0.1:8000/v1") == "tok-123"
    with pytest.raises(ParameterError, match="is not sent to http:"):
        token_for("http://far.example/v1")
    assert without_token("bad\n token tok-123") == "bad token ***"
    monkeypatch.setenv(TOKEN, "tök")
    with pytest.raises(ParameterError, match="holds signs that no header can carry"):
        token_for("https://far.example/v1")
