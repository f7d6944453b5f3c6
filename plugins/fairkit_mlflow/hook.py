"""The receiver of MLflow's webhooks: about sixty lines that believe nothing but what they look up themselves."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from email.message import Message

MOST_BYTES, MOST_SECONDS, MOST_SEEN = 64 * 1024, 300, 10_000
"""Of a request's body; between its time and now; deliveries that are remembered."""
_CREATED = {"entity": "model_version_alias", "action": "created"}


class RefusedError(Exception):
    """A request that is not MLflow's, with the status that answers it."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def checked(headers: Message | Mapping[str, str], body: bytes, secret: bytes, now: float) -> tuple[str, dict[str, Any]]:
    """Return a delivery's id and its content, where the secret has signed ``id.time.body`` a short while ago."""
    delivery, at = headers.get("X-MLflow-Delivery-Id", ""), headers.get("X-MLflow-Timestamp", "")
    signed = hmac.new(secret, f"{delivery}.{at}.".encode() + body, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(signed).decode("ascii")
    if not hmac.compare_digest(expected.encode(), headers.get("X-MLflow-Signature", "").encode("utf-8", "replace")):
        raise RefusedError(401, "the signature is not by the secret")
    if not at.isascii() or not at.isdecimal() or abs(now - int(at)) > MOST_SECONDS:
        raise RefusedError(401, "the time is too far from now")
    try:
        record = json.loads(body)
    except ValueError:
        raise RefusedError(400, "the body is no JSON") from None
    if not isinstance(record, dict):
        raise RefusedError(400, "the body is no object")
    return delivery, record


class HookServer(ThreadingHTTPServer):
    """Answers webhooks; `act` is told each alias that was set (model, alias), `failed` what went wrong with it."""

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], secret: bytes, act: Callable[[str, str], None], failed: Callable[[str], None]
    ) -> None:
        super().__init__(address, _Handler)
        self.secret, self.act, self.failed = secret, act, failed
        self._seen: OrderedDict[str, None] = OrderedDict()

    def new(self, delivery: str) -> bool:
        """Return whether a delivery was not seen before, and remember it."""
        if delivery in self._seen:
            return False
        self._seen[delivery] = None
        if len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)
        return True

    def forget(self, delivery: str) -> None:
        """Let a delivery come again: it could not be acted on."""
        self._seen.pop(delivery, None)


class _Handler(BaseHTTPRequestHandler):
    server: HookServer
    timeout = 10
    server_version = "fairkit"

    def do_POST(self) -> None:
        try:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > MOST_BYTES:
                raise RefusedError(413, "the body is too long, or of unknown length")
            body = self.rfile.read(int(length))
            delivery, record = checked(self.headers, body, self.server.secret, time.time())
            data = record.get("data")
            named = isinstance(data, dict) and all(isinstance(data.get(key), str) for key in ("name", "alias"))
            if any(record.get(key) != value for key, value in _CREATED.items()) or not named:
                self._answer(200, "nothing to do")
            elif not self.server.new(delivery):
                self._answer(200, "seen before")
            else:
                self._act(delivery, record["data"])
        except RefusedError as error:
            self._answer(error.status, str(error))

    def _act(self, delivery: str, data: Mapping[str, str]) -> None:
        try:
            self.server.act(data["name"], data["alias"])
        except Exception as error:  # whatever failed: MLflow tries again, and nothing of this is for its eyes
            self.server.forget(delivery)
            self.server.failed(str(error))
            self._answer(503, "try again")
        else:
            self._answer(200, "looked at")

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:
        """Write nothing: requests are anybody's text."""
