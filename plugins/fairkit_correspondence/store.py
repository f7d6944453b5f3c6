"""The answers so far, one committed SQLite row each, and a budget that is reserved before it is sent."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fairkit.errors import DataError, FairkitError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers
  (key TEXT PRIMARY KEY, number INTEGER NOT NULL, record TEXT NOT NULL, cost REAL NOT NULL);
CREATE TABLE IF NOT EXISTS reserved (id INTEGER PRIMARY KEY, amount REAL NOT NULL);
CREATE TABLE IF NOT EXISTS sentinels (round INTEGER, number INTEGER, record TEXT NOT NULL, PRIMARY KEY (round, number));
"""


class BudgetError(FairkitError):
    """The budget does not allow another request."""


class Store:
    """The file beside the output.

    Money is reserved before a request is sent and settled by what the server says it used. What was reserved when a
    process was killed counts as spent: the server may have done the work.

    Parameters
    ----------
    path
        The file.
    plan
        The digest of the plan; a file of another plan is refused.
    subject
        The address and model that are asked; another one is refused.
    """

    def __init__(self, path: Path, plan: str, subject: Mapping[str, Any]) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=5)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.strip().split(";\n"):
                self._db.execute(statement.rstrip(";"))
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise DataError(f"{path} cannot be used ({error}); does another fairkit ask into it?") from None
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"{path} is no file of fairkit ask ({error}); move it away, or name another output"
            ) from None
        for key, value, what in (
            ("plan", plan, "another plan"),
            ("subject", json.dumps(dict(subject), sort_keys=True), "another address or model"),
        ):
            known = self.fact(key)
            if known is not None and known != value:
                self.close()
                raise DataError(f"{path} has answers to {what}; name another --output, or ask with that one")
            self.remember(key, value)
        # what was reserved when a process was killed counts as spent
        self._lost = float(self.fact("lost") or 0) + self._sum("SELECT SUM(amount) FROM reserved")
        self._settled = self._sum("SELECT SUM(cost) FROM answers")
        self._held: dict[int, float] = {}
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("DELETE FROM reserved")
        self._keep_lost()
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def fact(self, key: str) -> str | None:
        """Return what is remembered under a key."""
        row = self._db.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def remember(self, key: str, value: str) -> None:
        """Remember a fact."""
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))

    @property
    def spent(self) -> float:
        """What was settled, lost in killed processes, and paid for tries without an answer."""
        return self._settled + self._lost

    def reserve(self, amount: float, budget: float | None) -> int:
        """Reserve money for one try and return the reservation.

        Raises
        ------
        BudgetError
            Spent and reserved money would exceed the budget.
        """
        with self._lock:
            if budget is not None and self.spent + sum(self._held.values()) + amount > budget + 1e-12:
                raise BudgetError("the budget is used up")
            made = int(self._db.execute("INSERT INTO reserved (amount) VALUES (?)", (amount,)).lastrowid or 0)
            self._held[made] = amount
            return made

    def release(self, reservation: int, *, paid: bool) -> None:
        """Give a reservation back, or count it as spent where the server may have done the work."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM reserved WHERE id = ?", (reservation,))
            amount = self._held.pop(reservation)
            if paid:
                self._lost += amount
                self._keep_lost()
            self._db.execute("COMMIT")

    def settle(self, reservation: int, key: str, number: int, record: Mapping[str, Any], cost: float) -> None:
        """Store an answer and what it cost, at once; the first answer to a request stays."""
        text = json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM reserved WHERE id = ?", (reservation,))
            new = self._db.execute(
                "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", (key, number, text, cost)
            )
            self._held.pop(reservation)
            if new.rowcount:
                self._settled += cost
            else:
                self._lost += cost
                self._keep_lost()
            self._db.execute("COMMIT")

    def keys(self) -> set[str]:
        """Return the keys of all answers."""
        return {row[0] for row in self._db.execute("SELECT key FROM answers")}

    def records(self) -> Iterator[tuple[int, dict[str, Any], float]]:
        """Return each answer's request number, record and cost."""
        for number, text, cost in self._db.execute(
            "SELECT number, record, cost FROM answers WHERE number >= 0 ORDER BY number"
        ):
            yield number, json.loads(text), cost

    def add_sentinel(self, turn: int, number: int, record: Mapping[str, Any]) -> None:
        """Store a sentinel's answer."""
        with self._lock:
            self._db.execute(
                "INSERT OR REPLACE INTO sentinels VALUES (?, ?, ?)",
                (turn, number, json.dumps(record, sort_keys=True)),
            )

    def sentinels(self) -> dict[int, dict[int, dict[str, Any]]]:
        """Return the sentinels' answers by round and request number."""
        found: dict[int, dict[int, dict[str, Any]]] = {}
        for turn, number, text in self._db.execute(
            "SELECT round, number, record FROM sentinels ORDER BY round, number"
        ):
            found.setdefault(turn, {})[number] = json.loads(text)
        return found

    def _keep_lost(self) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES ('lost', ?)", (repr(self._lost),))

    def _sum(self, sql: str) -> float:
        return float(self._db.execute(sql).fetchone()[0] or 0)
