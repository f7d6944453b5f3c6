"""Chat completions over HTTP: one request with a limit of time and size, and what its failure means."""

from __future__ import annotations

import functools
import json
import math
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

import fairkit_http
from fairkit.errors import DataError, FairkitError, MissingExtraError, ModelError, ParameterError
from fairkit.intervals import two_sided
from fairkit.limits import bisected
from fairkit.sources.address import TOKEN, check_address, token_for, without_token
from fairkit.support.escaping import visible
from fairkit.support.lazy_dataclass import dataclass, field, replace

if TYPE_CHECKING:
    import httpx
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


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


# The answers so far, one committed SQLite row each, and a budget that is reserved before it is sent.


_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS answers "
    "(key TEXT PRIMARY KEY, number INTEGER NOT NULL, record TEXT NOT NULL, cost REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS reserved (id INTEGER PRIMARY KEY, amount REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS sentinels "
    "(round INTEGER, number INTEGER, record TEXT NOT NULL, PRIMARY KEY (round, number))",
)


class BudgetError(FairkitError):
    """The budget does not allow another request."""


class Store:
    """The file beside the output.

    Money is reserved before a request is sent and settled by what the server says it used. What was reserved when a
    process was killed counts as spent: the server may have done the work.
    """

    def __init__(self, path: Path, plan: str, model: str) -> None:
        self.path, self._lock = path, threading.Lock()
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=5)
            for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "locking_mode=EXCLUSIVE"):
                self._db.execute(f"PRAGMA {pragma}")
            with self._transaction():
                for statement in _SCHEMA:
                    self._db.execute(statement)
        except sqlite3.OperationalError as error:
            raise DataError(f"{path} cannot be used ({error}); does another fairkit ask into it?") from None
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"{path} is no file of fairkit ask ({error}); move it away, or name another output"
            ) from None
        for key, value in (("plan", plan), ("model", model)):
            if self.fact(key) not in (None, value):
                self.close()
                raise DataError(f"{path} has answers to another {key}; name another --output, or ask with that one")
            self.remember(key, value)
        self._lost = float(self.fact("lost") or 0) + self._sum("SELECT SUM(amount) FROM reserved")
        self._settled = self._sum("SELECT SUM(cost) FROM answers")
        self._held: dict[int, float] = {}
        with self._transaction():
            self._db.execute("DELETE FROM reserved")
            self._lose(0.0)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def fact(self, key: str) -> str | None:
        """Return what is remembered under a key."""
        row = self._db.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def remember(self, key: str, value: str) -> None:
        """Remember a fact."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))

    @property
    def spent(self) -> float:
        """What was settled, lost in killed processes, and paid for tries without an answer."""
        return self._settled + self._lost

    def reserve(self, amount: float, budget: float | None) -> int:
        """Reserve money for one try and return the reservation."""
        with self._transaction():
            if budget is not None and self.spent + sum(self._held.values()) + amount > budget + 1e-12:
                raise BudgetError("the budget is used up")
            made = int(self._db.execute("INSERT INTO reserved (amount) VALUES (?)", (amount,)).lastrowid or 0)
            self._held[made] = amount
            return made

    def release(self, reservation: int, *, paid: bool) -> None:
        """Give a reservation back, or count it as spent where the server may have done the work."""
        with self._transaction():
            amount = self._drop(reservation)
            self._lose(amount if paid else 0.0)

    def settle(self, reservation: int, key: str, number: int, record: Mapping[str, Any], cost: float) -> None:
        """Store an answer and what it cost, at once; the first answer to a request stays."""
        text = json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        with self._transaction():
            self._drop(reservation)
            new = self._db.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", (key, number, text, cost))
            if new.rowcount:
                self._settled += cost
            else:
                self._lose(cost)

    def keys(self) -> set[str]:
        """Return the keys of all answers."""
        return {row[0] for row in self._db.execute("SELECT key FROM answers")}

    def records(self) -> Iterator[tuple[int, dict[str, Any], float]]:
        """Return each answer's request number, record and cost."""
        every = "SELECT number, record, cost FROM answers WHERE number >= 0 ORDER BY number"
        for number, text, cost in self._db.execute(every):
            yield number, json.loads(text), cost

    def add_sentinel(self, turn: int, number: int, record: Mapping[str, Any]) -> None:
        """Store a sentinel's answer."""
        row = (turn, number, json.dumps(record, sort_keys=True))
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO sentinels VALUES (?, ?, ?)", row)

    def sentinels(self) -> dict[int, dict[int, dict[str, Any]]]:
        """Return the sentinels' answers by round and request number."""
        rounds: dict[int, dict[int, dict[str, Any]]] = {}
        every = "SELECT round, number, record FROM sentinels ORDER BY round, number"
        for turn, number, text in self._db.execute(every):
            rounds.setdefault(turn, {})[number] = json.loads(text)
        return rounds

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except sqlite3.OperationalError as error:
                self._db.rollback()  # nothing where SQLite has rolled back by itself, as on a full disk
                raise DataError(
                    f"{self.path} cannot be written ({error}): free some space, or look into its permissions, and run "
                    "the same command again; the answers so far are in it"
                ) from None
            except BaseException:
                self._db.rollback()
                raise

    def _drop(self, reservation: int) -> float:
        self._db.execute("DELETE FROM reserved WHERE id = ?", (reservation,))
        return self._held.pop(reservation)

    def _lose(self, amount: float) -> None:
        """Count money without an answer as spent."""
        self._lost += amount
        self._db.execute("INSERT OR REPLACE INTO facts VALUES ('lost', ?)", (repr(self._lost),))

    def _sum(self, sql: str) -> float:
        return float(self._db.execute(sql).fetchone()[0] or 0)


# Looks at unfinished audits: how much confidence each of several planned looks may spend.


_NORMAL = NormalDist()
_CDF = np.vectorize(_NORMAL.cdf)
LARGEST = 8.0
"""The largest bound: a confidence beyond it is 1 in floating point, and no interval has it."""


@functools.lru_cache(maxsize=64)
def quantiles(looks: int, confidence: float) -> tuple[float, ...]:
    """Return the normal quantile of each of `looks` evenly spaced looks.

    Lan & DeMets (1983) with O'Brien and Fleming's spending, 2 - 2Φ(z/√s) of each tail at the share s of the documents;
    all looks together miss with probability 1 - `confidence`. Five looks at 95 %: 4.877, 3.357, 2.680, 2.290, 2.031.
    """
    if looks == 1:
        return (two_sided(confidence),)
    z, sd, spent = _NORMAL.inv_cdf(1 - (1 - confidence) / 4), math.sqrt(1 / looks), 0.0
    # the distribution of the sum where no look has ended the audit: places with their weights
    nodes, weight, bounds = np.zeros(1), np.ones(1), []
    for share in (index / looks for index in range(1, looks + 1)):
        whole = 2 * _NORMAL.cdf(-z / math.sqrt(share))
        end = _end(nodes, weight, sd, whole - spent, LARGEST * math.sqrt(share))
        bounds.append(end / math.sqrt(share))
        inside = np.linspace(-end, end, 1601)
        density = np.exp(-(((inside[:, None] - nodes) / sd) ** 2) / 2) @ weight / (sd * math.sqrt(2 * math.pi))
        nodes, weight, spent = inside, density * (inside[1] - inside[0]), whole
        weight[[0, -1]] /= 2
    return tuple(bounds)


def _end(place: Array, weight: Array, sd: float, due: float, most: float) -> float:
    """Return what the sum exceeds after one more step of deviation `sd` with probability `due`; at most `most`."""
    return sum(bisected(lambda end: weight @ _CDF((place - end) / sd) > due, 0.0, most, 50)) / 2


def confidence_at(look: int, looks: int, confidence: float) -> float:
    """Return the confidence of the interval at look number `look` of `looks`, from 1."""
    return 2 * _NORMAL.cdf(quantiles(looks, confidence)[look - 1]) - 1
