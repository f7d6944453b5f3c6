"""Totals by SQL against the bare GROUP BY that they come from: CPU seconds, and the memory of the process.

    python benchmarks/pushdown.py --rows 100000000 --folder /tmp/pushdown
    python benchmarks/pushdown.py --rows 100000000 --server postgresql://user@127.0.0.1:5432/postgres --pid 4711

Decisions of ten groups in thirty strata, made by DuckDB, or by a PostgreSQL server on this machine, whose first process
is named. Pairs of runs in turn in one process; its peak of memory is that of DuckDB and of the audit together. CPU
seconds are those of this process and of the server's.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

import fairkit
from fairkit_sql.engine import SqlEngine

RESULT = Path(__file__).parent / "results" / "pushdown.json"
BARE = "SELECT origin, office, repaid, approved, count(*) FROM decisions GROUP BY ALL"
_MADE = """CREATE TABLE decisions AS SELECT
    (hash(i) % 10)::UTINYINT AS origin, (hash(i + 7) % 30)::UTINYINT AS office,
    (hash(i * 3 + 1) % 2)::UTINYINT AS repaid, (hash(i * 5 + 2) % 100 < 40 + hash(i) % 10)::UTINYINT AS approved
    FROM range({rows}) AS t(i)"""


_MADE_THERE = """CREATE UNLOGGED TABLE decisions AS SELECT
    (h % 10)::smallint AS origin, (h / 16 % 30)::smallint AS office, (h / 1024 % 2)::smallint AS repaid,
    (h / 4096 % 100 < 40 + h % 10)::int::smallint AS approved
    FROM (SELECT abs(hashint8(i)::bigint) AS h FROM generate_series(1, {rows}) AS t(i)) AS hashed"""


class Server:
    """A PostgreSQL server and the decisions in it."""

    def __init__(self, uri: str, process: int) -> None:
        self.uri, self.process = uri, process

    def made(self, rows: int) -> None:
        """Make the table anew."""
        self._run("DROP TABLE IF EXISTS decisions", _MADE_THERE.format(rows=rows), "VACUUM ANALYZE decisions")

    def bare(self) -> None:
        """Run the query."""
        self._run(BARE.replace("ALL", "1, 2, 3, 4"))

    def audited(self) -> None:
        """Audit what the server counts."""
        audit(f"{self.uri}?query=SELECT * FROM decisions")

    def cpu(self) -> float:
        """Return the CPU seconds of its processes that ended: one for each connection."""
        fields = Path(f"/proc/{self.process}/stat").read_text("utf-8").rpartition(")")[2].split()
        return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")

    def _run(self, *statements: str) -> None:
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.uri, autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def made(folder: Path, rows: int) -> Path:
    """Return the database, which is made where it is not there."""
    path = folder / f"decisions-{rows}.db"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with duckdb.connect(str(path)) as connection:
            connection.sql(_MADE.format(rows=rows))
    return path


def bare(path: Path) -> None:
    """Run the query."""
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.sql(BARE).fetchall()


def audited(path: Path) -> None:
    """Audit what the database counts."""
    audit(f"duckdb:{path}?query=SELECT * FROM decisions")


def audit(address: str) -> None:
    """Audit what the database at an address counts, inside strata too."""
    data = fairkit.load_data(
        address,
        label="repaid",
        favorable=1,
        sensitive=["origin"],
        within=["office"],
        predictions={"decision": "approved"},
    )
    fairkit.audit(None, data, engine=SqlEngine(pulls=False))


def measured(function: Callable[[], None], server: Server | None) -> tuple[float, float]:
    """Return seconds of the processor and of the clock."""

    def spent() -> float:
        return time.process_time() + (0.0 if server is None else server.cpu())

    cpu, clock = spent(), time.perf_counter()
    function()
    gone = time.perf_counter() - clock
    if server is not None:
        time.sleep(1)  # until the connection's process has ended
    return spent() - cpu, gone


def main() -> None:
    """Print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/pushdown"))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--server")
    parser.add_argument("--pid", type=int)
    chosen = parser.parse_args()
    server = None if chosen.server is None else Server(chosen.server, chosen.pid)
    figures = []
    for rows in chosen.rows:
        path = None if server else made(chosen.folder, rows)
        if server is None:
            runs = functools.partial(bare, path), functools.partial(audited, path)
        else:
            server.made(rows)
            runs = server.bare, server.audited
        measured(runs[1], server)  # imports
        pairs = [[measured(run, server) for run in runs] for _ in range(chosen.pairs)]
        first, second = (min(pair[place][0] for pair in pairs) for place in (0, 1))
        one = {
            "database": "DuckDB" if server is None else "PostgreSQL",
            "rows": rows,
            "bare_cpu_s": round(first, 3),
            "audit_cpu_s": round(second, 3),
            "ratio": round(second / first, 2),
            "beyond_cpu_s": round(second - first, 3),
            "bare_s": round(min(pair[0][1] for pair in pairs), 3),
            "audit_s": round(min(pair[1][1] for pair in pairs), 3),
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "file_mib": None if path is None else path.stat().st_size >> 20,
        }
        print(json.dumps(one), flush=True)
        figures.append(one)
    known = [
        {"database": "DuckDB", **run}
        for run in json.loads(RESULT.read_text("utf-8"))["runs"]
        if (run.get("database", "DuckDB"), run["rows"]) not in [(new["database"], new["rows"]) for new in figures]
    ]
    RESULT.write_text(json.dumps({"duckdb": duckdb.__version__, "runs": [*known, *figures]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
