"""The answers so far, one committed SQLite row each, and a budget that is reserved before it is sent."""

from __future__ import annotations

import functools
import json
import math
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, FairkitError
from fairkit.intervals import two_sided

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


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
    return bisected(lambda end: weight @ _CDF((place - end) / sd) > due, 0.0, most)


def bisected(below: Callable[[float], bool], low: float, high: float) -> float:
    """Return the number between `low` and `high` up to which `below` holds."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return (low + high) / 2


def confidence_at(look: int, looks: int, confidence: float) -> float:
    """Return the confidence of the interval at look number `look` of `looks`, from 1."""
    return 2 * _NORMAL.cdf(quantiles(looks, confidence)[look - 1]) - 1
