"""A server of chat completions whose answers are a function of the prompt, so that the truth is known."""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def unit(*parts: object) -> float:
    """Return a number in [0, 1) by digest."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7]) / 2**56


def normal(*parts: object) -> float:
    u, v = unit("u", *parts), unit("v", *parts)
    return math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * v)


@dataclass
class Behaviour:
    """What the server does.

    `gap` is what the group `favoured` gets on top, in probability; `name_sd` the spread of single names.
    """

    favoured: str = "grey"
    gap: float = 0.0
    level: float = 0.45
    document_sd: float = 0.08
    name_sd: float = 0.01
    order_effect: float = 0.0
    logprobs: bool = True
    refuse: float = 0.0
    filter_400: float = 0.0
    busy: float = 0.0
    busy_header: str = "date"
    cut_off: float = 0.0
    drift_after: int | None = None
    drift: float = 0.0
    rename_after: int | None = None
    fingerprints: bool = False
    repeats: bool = False
    split_tokens: bool = False
    minus_9999: bool = False
    think: bool = False
    inject: bool = False
    slow: float = 0.0
    huge: float = 0.0
    score: bool = False
    ranking: bool = False
    refuses: tuple[str, ...] = ()
    seed: int = 0


@dataclass
class FakeServer:
    """Runs in a thread; `with FakeServer(behaviour) as server: server.url`."""

    behaviour: Behaviour
    calls: int = 0
    paid: float = 0.0
    seen: list = field(default_factory=list)
    turns: dict = field(default_factory=dict)
    headers: list = field(default_factory=list)

    def __enter__(self) -> FakeServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_GET(self):
                self._send(404, {"error": {"message": "no such page"}})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.headers.append(dict(self.headers))
                status, record, more = outer.answer(body)
                self._send(status, record, more)

            def _send(self, status, record, more=None):
                raw = record if isinstance(record, bytes) else json.dumps(record).encode()
                self.send_response(status)
                for key, value in (more or {}).items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                try:
                    if outer.behaviour.slow and status == 200 and unit("slow", outer.calls) < 0.1:
                        for byte in raw[:20]:
                            self.wfile.write(bytes([byte]))
                            self.wfile.flush()
                            time.sleep(outer.behaviour.slow)
                        self.close_connection = True
                        return
                    self.wfile.write(raw)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # clients are killed in the tests
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self.prepare()
        return self

    def prepare(self) -> None:
        self.lock = threading.Lock()

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, body):
        b = self.behaviour
        with self.lock:
            self.calls += 1
            call = self.calls
        for name in b.refuses:
            if name in body:
                return (
                    400,
                    {"error": {"message": f"Unsupported parameter: '{name}'. Use max_completion_tokens."}},
                    None,
                )
        prompt = body["messages"][-1]["content"]
        if unit(b.seed, "busy", prompt, call) < b.busy:
            when = format_datetime(datetime.now(UTC) + timedelta(seconds=0.0), usegmt=True)
            header = {"date": ("retry-after", when), "seconds": ("retry-after", "0"), "ms": ("retry-after-ms", "1")}
            return 429, {"error": {"message": "rate limit"}}, dict([header[b.busy_header]])
        with self.lock:
            self.seen.append(prompt)
        if unit(b.seed, "filter", prompt) < b.filter_400:
            return (
                400,
                {"error": {"code": "content_filter", "message": "filtered by the content management policy"}},
                None,
            )
        if b.huge and unit(b.seed, "huge", prompt) < b.huge:
            return 200, b'{"choices": [{"message": {"content": "' + b"x" * (2 << 20) + b'"}}]}', None
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 1}
        record = {"id": "x", "object": "chat.completion", "model": "fake-1", "usage": usage}
        if b.rename_after is not None and call > b.rename_after:
            record["model"] = "fake-2"
        if b.fingerprints:
            record["system_fingerprint"] = f"fp_{call % 3}"
        record["choices"] = [self.choice(prompt, body, call)]
        with self.lock:
            self.paid += usage["prompt_tokens"] + usage["completion_tokens"]
        return 200, record, None

    def choice(self, prompt, body, call):
        b = self.behaviour
        if unit(b.seed, "refuse", prompt) < b.refuse:
            return {"finish_reason": "stop", "message": {"content": None, "refusal": "I cannot help with that."}}
        if unit(b.seed, "cut", prompt) < b.cut_off:
            return {"finish_reason": "length", "message": {"content": "Let me first"}}
        if b.ranking:
            entries = re.split(r"\n\n([A-Z])\.\n", "\n\n" + prompt.split("letters")[0])
            worth = {}
            for letter, text in zip(entries[1::2], entries[2::2], strict=True):
                worth[letter] = self.chance(text) + 0.4 * normal(b.seed, "draw", text)
            order = sorted(worth, key=worth.get, reverse=True)
            return {"finish_reason": "stop", "message": {"content": ", ".join(order)}}
        p = self.chance(prompt)
        if b.drift_after is not None and call > b.drift_after:
            p = min(p + b.drift, 0.98)
        if b.inject and "ignore" in prompt.lower():
            p = 0.97
        if b.score:
            return {"finish_reason": "stop", "message": {"content": f"Score: {10 * p:.1f}"}}
        with self.lock:
            turn = self.turns[prompt] = self.turns.get(prompt, -1) + 1
        drawn = unit(b.seed, "draw", prompt, 0 if b.repeats else turn) < p
        text = "Yes" if drawn else "No"
        if b.think:
            text = f"<think>The applicant has merits, no doubt, yes.</think>\n\n{text}."
        choice = {"finish_reason": "stop", "message": {"content": text}}
        if body.get("logprobs") and b.logprobs:
            choice["logprobs"] = {"content": self.tokens(p, text)}
        return choice

    def tokens(self, p, text):
        b = self.behaviour
        likely = {"Yes": 0.98 * p, "No": 0.98 * (1 - p), " maybe": 0.02}
        if b.split_tokens:
            likely = {"y": 0.5 * p, " YES": 0.48 * p, "n": 0.98 * (1 - p), "_": 0.02}
        top = [{"token": t, "logprob": math.log(max(v, 1e-30)), "bytes": None} for t, v in likely.items()]
        if b.minus_9999:
            top.append({"token": "yes", "logprob": -9999.0})
        first = top[0] if text.lower().startswith("y") else top[1]
        found = []
        if b.think:
            found = [{"token": t, "logprob": -0.1, "top_logprobs": []} for t in ("<think>", "yes", "</think>", "\n\n")]
        return [*found, {**first, "top_logprobs": top}]

    def chance(self, text):
        """Return P(yes): the document's level, the context, the gap of the favoured group, and the name."""
        b = self.behaviour
        document = re.search(r"Reference (\d+)", text)
        name = re.search(r"Applicant: (\w+) (\w+)", text)
        group = name[2].lower()
        p = b.level + b.document_sd * normal(b.seed, "document", document[1])
        p += b.gap * (group == b.favoured) + b.name_sd * normal(b.seed, "name", name[1], name[2])
        if "No, Yes" in text or "no, yes" in text:
            p += b.order_effect
        return min(max(p, 0.02), 0.98)
