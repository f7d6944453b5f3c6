"""What data behind an address cost beyond their transfer, against the same rows in a file here.

``python benchmarks/sources.py [--rows N] [--pairs N] [--postgres postgresql://user@host:port/database]`` writes the
loans with scores to a file, to an S3 server of its own (moto), to a DuckDB file, and to the database (its password is
in PGPASSWORD), and audits each in turn, every time in a fresh process. It prints wall and CPU seconds and the peak of
memory of each, of the bare transfer (the bytes read as often as an audit reads them; the query's batches fetched and
dropped), and the ratio (audit - transfer) / audit of the file, in CPU seconds, which other work on the machine moves
least.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

QUERY = "SELECT * FROM benchmark_loans ORDER BY id"
KEYS = {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark", "AWS_REGION": "us-east-1"}


def table(rows: int) -> pa.Table:
    """Loans with scores and decisions of a model that nobody sees."""
    from fairkit_datasets.loans import loans_table

    loans = loans_table(rows, 2)
    rng = np.random.default_rng(0)
    score = np.round(np.clip(rng.normal(0.5, 0.2, rows), 0, 1), 6)
    loans = loans.append_column("score", pa.array(score)).append_column("said", pa.array(score >= 0.5))
    return loans.append_column("id", pa.array(np.arange(rows)))


@contextmanager
def s3_server() -> Iterator[str]:
    """Start moto in a process of its own."""
    code = (
        "import logging, sys; logging.getLogger('werkzeug').setLevel(logging.ERROR)\n"
        "from moto.server import ThreadedMotoServer\n"
        "server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False); server.start()\n"
        "print(server.get_host_and_port()[1], flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.communicate()


def peak() -> float:
    """The most memory that this process had, in MiB; getrusage would count its parent's."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def one(what: str, address: str) -> None:
    """Do one thing and print what it took."""
    import fairkit
    from fairkit.sources import Address, store

    started, used = time.perf_counter(), time.process_time()
    if what == "audit":
        predictions = {"score": "score", "decision": "said"}
        roles = {"label": "decision", "favorable": "approved", "sensitive": ["sex", "region"]}
        data = fairkit.load_data(address, **roles, drop=["id"], predictions=predictions)
        fairkit.audit(None, data)
    elif address.startswith("s3:"):
        for _ in range(2):
            filesystem, path = store(Address.parse(address))
            with filesystem.open_input_file(path) as file:
                while file.read(1 << 24):
                    pass
    elif address.startswith("postgresql:"):
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(address.partition("?")[0]) as connection, connection.cursor() as cursor:
            cursor.execute(QUERY)
            for _ in cursor.fetch_record_batch():
                pass
    else:
        import duckdb

        with duckdb.connect(address.partition("?")[0].removeprefix("duckdb:"), read_only=True) as connection:
            for _ in connection.sql(QUERY).to_arrow_reader(1 << 16):
                pass
    took = {"wall": time.perf_counter() - started, "cpu": time.process_time() - used, "peak": peak()}
    print(json.dumps(took))


def run(what: str, address: str) -> dict[str, float]:
    """Do one thing in a fresh process."""
    told = [sys.executable, __file__, "--one", what, address]
    done = subprocess.run(told, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def prepared(rows: int, folder: Path, url: str, postgres: str | None) -> dict[str, str]:
    """Write the rows everywhere; return the addresses."""
    import duckdb
    from pyarrow.fs import S3FileSystem

    loans = table(rows)
    pq.write_table(loans, folder / "loans.parquet", row_group_size=1 << 18)
    filesystem = S3FileSystem(
        endpoint_override=url.removeprefix("http://"), scheme="http", region="us-east-1", allow_bucket_creation=True
    )
    filesystem.create_dir("data")
    pq.write_table(loans, "data/loans.parquet", filesystem=filesystem, row_group_size=1 << 18)
    with duckdb.connect(str(folder / "loans.db")) as connection:
        connection.register("given", loans)
        connection.sql("CREATE TABLE benchmark_loans AS SELECT * FROM given")
    addresses = {"s3": "s3://data/loans.parquet", "duckdb": f"duckdb:{folder / 'loans.db'}?query={QUERY}"}
    if postgres:
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest("benchmark_loans", loans, mode="replace")
            connection.commit()
        addresses["postgresql"] = f"{postgres}?query={QUERY}"
    return addresses


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--postgres")
    parser.add_argument("--one", nargs=2)
    told = parser.parse_args()
    if told.one:
        one(*told.one)
        return
    with tempfile.TemporaryDirectory() as place, s3_server() as url:
        os.environ.update(KEYS, AWS_ENDPOINT_URL=url)
        folder = Path(place)
        addresses = prepared(told.rows, folder, url, told.postgres)
        here = str(folder / "loans.parquet")
        print(f"{told.rows:,} rows, load {os.getloadavg()[0]:.1f}")
        for name, address in addresses.items():
            pairs = []
            for _ in range(told.pairs):
                file, bare, there = run("audit", here), run("transfer", address), run("audit", address)
                pairs.append((file, bare, there))
            ratios = [(there["cpu"] - bare["cpu"]) / file["cpu"] for file, bare, there in pairs]
            walls = [(there["wall"] - bare["wall"]) / file["wall"] for file, bare, there in pairs]
            for label, place_of in (("file", 0), ("transfer", 1), ("audit", 2)):
                shown = [pair[place_of] for pair in pairs]
                print(
                    f"{name:11} {label:9} wall {statistics.median(x['wall'] for x in shown):6.2f} s   "
                    f"cpu {statistics.median(x['cpu'] for x in shown):6.2f} s   "
                    f"peak {max(x['peak'] for x in shown):6.0f} MiB"
                )
            cpu, wall = statistics.median(ratios), statistics.median(walls)
            print(f"{name:11} beyond the transfer: {cpu:.2f} of the file's CPU time, {wall:.2f} of its wall time")


if __name__ == "__main__":
    main()
