"""HTTP within limits: a total time and a size for every answer, whatever trickles in."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any


class OversizedError(Exception):
    """An answer is longer than is read."""


class LateError(Exception):
    """An answer is not there whole within its time."""


_HALF = re.compile("[\ud800-\udfff]")


def read_json(raw: bytes) -> Any:
    """Return what an answer says in JSON, or None where it is none.

    Half a surrogate pair, which JSON can hold and no file, becomes the replacement character.
    """
    try:
        value = json.loads(raw)
        text = json.dumps(value, ensure_ascii=False) if b"\\u" in raw or b"\xed" in raw else ""
        return json.loads(_HALF.sub("\ufffd", text)) if _HALF.search(text) else value
    except (ValueError, RecursionError):
        return None


class Cutter:
    """Ends requests of one httpx client after a total time, whatever trickles in: httpx limits the wait for each byte.

    Pass `trace` as the extension ``trace`` of every request of the client, which one thread uses at a time.
    """

    def __init__(self) -> None:
        self._sockets: list[Any] = []

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Keep the sockets of the client's connections: httpx tells of them in its trace."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._sockets = [one for one in self._sockets if one is not None and one.fileno() >= 0]
            self._sockets.append(info["return_value"].get_extra_info("socket"))

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Raise LateError where the block takes longer, as soon as the request in it notices."""
        import httpx

        late = threading.Event()

        def end() -> None:
            late.set()
            for one in self._sockets:
                with suppress(OSError, AttributeError):
                    one.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except httpx.TransportError:
            if late.is_set():
                raise LateError from None
            raise
        finally:
            timer.cancel()
        if late.is_set():  # a body without a length ends well where its connection was shut
            raise LateError


def collect(parts: Iterable[bytes], most: int, deadline: float) -> bytes:
    """Return the bytes of an answer, read piece by piece."""
    body = bytearray()
    for part in parts:
        body += part
        if len(body) > most:
            raise OversizedError
        if time.monotonic() > deadline:
            raise LateError
    return bytes(body)


def pause_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an answer asks to be left alone; None: it does not.

    Read from Retry-After-Ms, as servers of language models write it, else from Retry-After: seconds, or a date.
    """
    with suppress(KeyError, ValueError):
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    text = headers.get("retry-after", "").strip()
    try:
        return max(float(text), 0.0) if text.lower() not in ("nan", "") else None
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)
