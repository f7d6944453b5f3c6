"""Chat completions over HTTP: one request with a limit of time and size, and what its failure means."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import fairkit_http
from fairkit.errors import MissingExtraError, ModelError, ParameterError
from fairkit.sources.address import TOKEN, check_address, token_for, without_token
from fairkit.support.escaping import visible
from fairkit.support.lazy_dataclass import dataclass, field, replace

if TYPE_CHECKING:
    import httpx

MOST_READ = 1 << 20
"""Bytes of the longest reply that is read."""
LONGEST_PAUSE = 300.0
"""Seconds that a server may ask to be left alone; longer ends the run, which can go on later."""
_AGAIN = (408, 409, 425, 429, 500, 502, 503, 504, 529)


def httpx_module() -> Any:
    """Return httpx, which an extra installs."""
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError("httpx", "correspondence") from error
    return httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where and how a model is asked."""

    url: str  # the address up to `/v1`; a query may hold `api-version` and nothing else
    model: str  # the model's name there
    timeout: float = 60.0  # seconds that one reply may take

    def __post_init__(self) -> None:
        check_address(self.url, "http://host:port/v1", queries=("api-version",))
        if not self.model:
            raise ParameterError("name the model with --model, as the server calls it")
        if not 0 < self.timeout < float("inf"):
            raise ParameterError(f"timeout={self.timeout} is not a number of seconds above 0")

    def at(self, path: str) -> str:
        """Return the address of a resource."""
        parts = urlsplit(self.url)
        return parts._replace(path=f"{parts.path.rstrip('/')}/{path}").geturl()


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: a record, or the reason why there is none."""

    record: Mapping[str, Any] = field(default_factory=dict)  # the JSON; empty where it failed
    status: int = 0  # the HTTP status; 0 where the connection failed or the time ran out
    reason: str = ""  # why it failed, in one short line without the token
    pause: float | None = None  # seconds after which the server may be asked again; None: as the client likes
    again: bool = False  # whether another try can help
    paid: bool = True  # whether the server may have done the work, so that the try counts as paid


class Client:
    """Connections to a server, one for each thread that asks."""

    def __init__(self, server: Server) -> None:
        httpx = httpx_module()
        self.server = server
        token = token_for(server.url)
        self._local, self._opened = threading.local(), list[Any]()
        azure = str(urlsplit(server.url).hostname).endswith((".azure.com", ".azure-api.net"))
        headers = {"api-key": token} if azure else {"Authorization": f"Bearer {token}"}
        self._settings = {
            "headers": headers if token else {},
            "timeout": httpx.Timeout(server.timeout, connect=min(5.0, server.timeout)),
        }

    def close(self) -> None:
        """Close the connections."""
        for connection in self._opened:
            connection.close()

    def _connection(self) -> tuple[httpx.Client, fairkit_http.Cutter]:
        """Return this thread's connection, and what ends its requests in time."""
        if not hasattr(self._local, "http"):
            self._local.http, self._local.cutter = httpx_module().Client(**self._settings), fairkit_http.Cutter()
            self._opened.append(self._local.http)
        return self._local.http, self._local.cutter

    @property
    def address(self) -> str:
        """Where the server is, without a version."""
        return self.server.at("").partition("?")[0].rstrip("/")

    @property
    def name(self) -> str:
        """What messages call the server."""
        return f"the endpoint {visible(self.address)}"

    def ask(self, messages: list[dict[str, str]], parameters: Mapping[str, Any]) -> Reply:
        """Put one request, once."""
        body = {"model": self.server.model, "messages": messages, **parameters}
        raw = json.dumps(body, ensure_ascii=False).encode()
        reply = self._once("POST", self.server.at("chat/completions"), raw)
        return replace(reply, record={}) if reply.reason else reply

    def properties(self) -> str:
        """Return what llama.cpp says about its weights, which it does not name in replies; empty for other servers."""
        address = urlsplit(self.server.url)._replace(path="/props", query="").geturl()
        record, keys = self._once("GET", address, None).record, ("model_path", "model_alias", "build_info")
        known = {key: record[key] for key in keys if isinstance(record.get(key), str)}
        return json.dumps(known, sort_keys=True) if known else ""

    def _once(self, method: str, url: str, body: bytes | None) -> Reply:
        httpx, limit = httpx_module(), self.server.timeout
        deadline, headers = time.monotonic() + limit, {"Content-Type": "application/json"} if body else {}
        http, cutter = self._connection()
        traced = {"trace": cutter.trace}
        try:
            with (
                cutter.within(limit),
                http.stream(method, url, content=body, headers=headers, extensions=traced) as response,
            ):
                return self._read(response, fairkit_http.collect(response.iter_bytes(), MOST_READ, deadline))
        except fairkit_http.OversizedError:
            return Reply(status=200, reason=f"a reply of more than {MOST_READ >> 20} MiB", again=True)
        except fairkit_http.LateError:
            return Reply(reason=f"no whole reply within {limit:g} s", again=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return Reply(reason=f"cannot be reached: {without_token(error)}", again=True, paid=False)
        except httpx.TimeoutException:
            return Reply(reason=f"no reply within {limit:g} s", again=True)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            return Reply(reason=f"connection broken: {without_token(error)}", again=True)

    def _read(self, response: httpx.Response, raw: bytes) -> Reply:
        status = response.status_code
        parsed = fairkit_http.read_json(raw)
        record = parsed if isinstance(parsed, dict) else {}
        if 200 <= status < 300:
            if record and not record.get("error"):
                choices = record.get("choices")
                complete = isinstance(choices, list) and len(choices) > 0
                return Reply(record, status, reason="" if complete else "JSON without choices")
            return Reply(status=status, reason="something that is no chat completion")
        if 300 <= status < 400:
            return Reply(status=status, reason="a redirect, which is not followed", paid=False)
        error = record.get("error") or raw[:200].decode("utf-8", "replace")
        said = error if isinstance(error, dict) else {"message": error}
        text = without_token(f"{said.get('code') or ''} {said.get('message') or ''}".strip())
        if status == 400 and ("content_filter" in text or "content management policy" in text):
            # Azure: the filter refused; the prompt is charged
            return Reply({"choices": [{"finish_reason": "content_filter", "message": {}}]}, status)
        reason, pause = f"error {status}: {text}", fairkit_http.pause_of(response.headers)
        return Reply(status=status, reason=reason, pause=pause, again=status in _AGAIN, paid=False)


def refuse(client: Client, reply: Reply) -> ModelError:
    """Return the error that a reply is, in one sentence."""
    if reply.status in (401, 403):
        return ModelError(f"{client.name} refuses access ({reply.status}); put a token into the variable {TOKEN}")
    if reply.status == 404 or (reply.status == 200 and reply.reason):
        return ModelError(
            f"{client.name} answers with {reply.reason}: it serves no chat completions of {client.server.model!r} "
            "under this address (which ends with /v1 for most servers)"
        )
    return ModelError(f"{client.name}: {reply.reason}")
