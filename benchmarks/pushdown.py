"""Totals by SQL against the bare GROUP BY that they come from: CPU seconds, and the memory of the process.

    python benchmarks/pushdown.py --rows 100000000 --folder /tmp/pushdown

Decisions of ten groups in thirty strata, made by DuckDB. Pairs of runs in turn in one process; its peak of memory is
that of DuckDB and of the audit together.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
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
    """Audit what the database counts, inside strata too."""
    data = fairkit.load_data(
        f"duckdb:{path}?query=SELECT * FROM decisions",
        label="repaid",
        favorable=1,
        sensitive=["origin"],
        within=["office"],
        predictions={"decision": "approved"},
    )
    fairkit.audit(None, data, engine=SqlEngine(pulls=False))


def measured(function, path: Path) -> tuple[float, float]:
    """Return seconds of the processor and of the clock."""
    cpu, clock = time.process_time(), time.perf_counter()
    function(path)
    return time.process_time() - cpu, time.perf_counter() - clock


def main() -> None:
    """Print and keep the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/pushdown"))
    parser.add_argument("--pairs", type=int, default=3)
    chosen = parser.parse_args()
    figures = []
    for rows in chosen.rows:
        path = made(chosen.folder, rows)
        audited(path)  # imports
        runs = [(measured(bare, path), measured(audited, path)) for _ in range(chosen.pairs)]
        first, second = (min(run[place][0] for run in runs) for place in (0, 1))
        one = {
            "rows": rows,
            "bare_cpu_s": round(first, 3),
            "audit_cpu_s": round(second, 3),
            "ratio": round(second / first, 2),
            "beyond_cpu_s": round(second - first, 3),
            "bare_s": round(min(run[0][1] for run in runs), 3),
            "audit_s": round(min(run[1][1] for run in runs), 3),
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "file_mib": path.stat().st_size >> 20,
        }
        print(json.dumps(one))
        figures.append(one)
    RESULT.write_text(json.dumps({"duckdb": duckdb.__version__, "runs": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
