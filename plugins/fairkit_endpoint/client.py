"""Asking an endpoint: requests with a limit of time, size and rate, tried again where that can help."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import fairkit_http
from fairkit.errors import MissingExtraError, ModelError, ParameterError
from fairkit.sources.servers import TOKEN, check_address, token_for, without_token
from fairkit.support.escaping import visible
from fairkit_endpoint.tensors import BINARY_LENGTH

if TYPE_CHECKING:
    import httpx

MOST_SENT = 16 << 20
"""No request is longer, in bytes."""
MOST_READ = 64 << 20
"""No answer may be longer, in bytes."""
TRIES = 5
"""How often a request is sent where the endpoint is busy or the connection breaks."""
_CONNECT = 4.0
"""Seconds for opening a connection."""
_LONGEST_PAUSE = 20.0
"""Seconds that an endpoint may ask to be left alone before the next try."""
_BUSY = (429, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """How an endpoint is asked."""

    url: str  # the server's address, such as `http://host:8000`; what follows, `/v2/models/...`, is added
    model: str  # the model's name there
    version: str | None = None  # its version; None leaves the choice to the server
    timeout: float = 60.0  # seconds that one answer may take, above 0
    rate: float | None = None  # the largest number of requests a second; None for no limit

    def __post_init__(self) -> None:
        check_address(self.url, "http://host:port or https://host")
        if not self.model:
            raise ParameterError("an endpoint serves models by name; say which one with `model_name`")
        for name in ("timeout", "rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ParameterError(f"{name}={value} of an endpoint is not a number above 0")

    @property
    def base(self) -> str:
        """The address without a slash at its end."""
        return self.url.rstrip("/")

    @property
    def path(self) -> str:
        """Where the model is."""
        version = "" if self.version is None else f"/versions/{quote(self.version, safe='')}"
        return f"{self.base}/v2/models/{quote(self.model, safe='')}{version}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the bytes, and how many of them are JSON where tensors follow."""

    body: bytes
    head: int | None


class Client:
    """One endpoint's connection. It leaves the connection behind when it is pickled."""

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self._http: httpx.Client | None = None
        self._cutter = fairkit_http.Cutter()
        self._owner = os.getpid()
        self._next = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["settings"])  # type: ignore[misc]

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._http is not None and self._owner == os.getpid():
            self._http.close()
        self._http = None

    def __del__(self) -> None:
        self.close()

    @property
    def name(self) -> str:
        """What messages call the endpoint."""
        return f"the endpoint {visible(self.settings.base)}"

    def describe(self) -> dict[str, Any]:
        """Return the model's metadata."""
        return self._record(self._send("GET", self.settings.path, None, {}))

    def server(self) -> dict[str, Any]:
        """Return the server's metadata; empty where it has none."""
        try:
            return self._record(self._send("GET", f"{self.settings.base}/v2", None, {}))
        except ModelError:
            return {}

    def infer(self, body: bytes, head: int | None) -> Answer:
        """Send rows."""
        headers = {"Content-Type": "application/json" if head is None else "application/octet-stream"}
        if head is not None:
            headers[BINARY_LENGTH] = str(head)
        return self._send("POST", f"{self.settings.path}/infer", body, headers)

    def _record(self, answer: Answer) -> dict[str, Any]:
        record = fairkit_http.read_json(answer.body)
        if not isinstance(record, dict):
            raise ModelError(
                f"{self.name} does not answer with metadata as JSON; does it speak version 2 of the Open Inference "
                "Protocol?"
            )
        return record

    def _send(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Ask once, and again where the endpoint is busy or the connection broke."""
        pause = 0.25
        for attempt in range(TRIES):
            last = attempt == TRIES - 1
            self._wait()
            try:
                status, answer, retry_after = self._once(method, url, body, headers)
            except _BrokenError as broken:
                # an address that nobody listens at is not asked for long
                if last or (broken.unreachable and attempt):
                    raise ModelError(f"{self.name} {broken}") from broken
                retry_after = None
            else:
                if status < 300:
                    return answer
                if status not in _BUSY or last:
                    raise ModelError(self._refusal(status, answer, retry_after))
            wanted = None if retry_after is None else fairkit_http.pause_of({"retry-after": retry_after})
            if wanted is not None and wanted > _LONGEST_PAUSE:
                raise ModelError(
                    f"{self.name} is busy, and asks to be left alone for {wanted:,.0f} s; ask it again then"
                )
            time.sleep(max(pause, wanted or 0.0))
            pause *= 2
        raise AssertionError("unreachable")  # pragma: no cover

    def _once(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, Answer, str | None]:
        """Return the status, the answer, and what a header says about the next try or another address."""
        deadline = time.monotonic() + self.settings.timeout
        client = self._client()
        traced = {"trace": self._cutter.trace}
        with (
            self._named(),
            self._cutter.within(self.settings.timeout),
            client.stream(method, url, content=body, headers=dict(headers), extensions=traced) as response,
        ):
            content = fairkit_http.collect(response.iter_bytes(), MOST_READ, deadline)
            more = response.headers.get("Location" if 300 <= response.status_code < 400 else "Retry-After")
            length = response.headers.get(BINARY_LENGTH)
            head = int(length) if length is not None and length.isdigit() else None
            return response.status_code, Answer(content, head), more

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn the library's errors into ours, without what they may quote."""
        import httpx

        try:
            yield
        except fairkit_http.LateError:
            raise ModelError(self._slow()) from None
        except fairkit_http.OversizedError:
            raise ModelError(f"{self.name} answers with more than {MOST_READ >> 20} MiB") from None
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _BrokenError(f"cannot be reached: {without_token(error)}", unreachable=True) from None
        except httpx.TimeoutException:
            raise ModelError(self._slow()) from None
        except httpx.TransportError as error:
            raise _BrokenError(f"breaks the connection: {without_token(error)}") from None
        except (httpx.DecodingError, httpx.InvalidURL) as error:
            raise ModelError(f"{self.name} cannot be read: {without_token(error)}") from None

    def _slow(self) -> str:
        return (
            f"{self.name} did not answer within {self.settings.timeout:g} s; ask it with a longer `endpoint_timeout`, "
            "or when it is less busy"
        )

    def _refusal(self, status: int, answer: Answer, told: str | None) -> str:
        """Return an error message for an answer that is no success."""
        if 300 <= status < 400:
            return (
                f"{self.name} redirects to {without_token(told or 'another address')}, which is not followed: the rows "
                "would go to an address that nobody named. Name that address if it is the right one"
            )
        where = f"model {visible(self.settings.model)}"
        if self.settings.version is not None:
            where += f", version {visible(self.settings.version)}"
        if status in (401, 403):
            return f"{self.name} refuses access ({status}, {where}); put a token into the environment variable {TOKEN}"
        return f"{self.name} answers with the error {status} ({where}): {without_token(_error_text(answer.body))}"

    def _wait(self) -> None:
        """Keep to the rate."""
        if self.settings.rate is None:
            return
        now = time.monotonic()
        if self._next > now:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + 1 / self.settings.rate

    def _client(self) -> httpx.Client:
        if self._http is None or self._owner != os.getpid():
            try:
                import httpx
            except ImportError as error:
                raise MissingExtraError("httpx", "endpoint") from error
            token = token_for(self.settings.base)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            timeout = httpx.Timeout(self.settings.timeout, connect=min(_CONNECT, self.settings.timeout))
            self._http = httpx.Client(headers=headers, timeout=timeout, follow_redirects=False)
            self._owner = os.getpid()
        return self._http


class _BrokenError(Exception):
    """The connection was not made, or was lost."""

    def __init__(self, what: str, *, unreachable: bool = False) -> None:
        super().__init__(what)
        self.unreachable = unreachable


def _error_text(body: bytes) -> str:
    record = fairkit_http.read_json(body[:100_000])
    text = record.get("error") if isinstance(record, dict) else None
    return str(text) if text else body[:200].decode("utf-8", "replace")
