"""Real servers, started once for this folder: S3 (moto) and PostgreSQL."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairkit_datasets.loans import loans_table

from .shared import SECRETS


@pytest.fixture(scope="session")
def loans() -> pa.Table:
    """Loans, in their order."""
    return loans_table(3_000, 2)


@dataclass(frozen=True)
class Bucket:
    """A bucket on a server of the tests' own."""

    url: str
    filesystem: Any

    def write(self, key: str, table: pa.Table, **how: Any) -> str:
        """Write a Parquet file and return its address."""
        pq.write_table(table, f"data/{key}", filesystem=self.filesystem, **how)
        return f"s3://data/{key}"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """A server that speaks S3, in this process: its address."""
    pytest.importorskip("flask", reason="moto's server is not installed")
    moto = pytest.importorskip("moto.server", reason="moto's server is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket, and an environment in which commands find it."""
    from pyarrow.fs import S3FileSystem

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, SECRETS[name])
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    filesystem = S3FileSystem(
        endpoint_override=s3_server.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    filesystem.create_dir("data")
    return Bucket(s3_server, filesystem)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass(frozen=True)
class Postgres:
    """A database."""

    port: int

    def address(self, query: str) -> str:
        """The address of a query."""
        return f"postgresql://fk@127.0.0.1:{self.port}/loans?query={query}"

    def run(self, *statements: str) -> None:
        """Change the database."""
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.uri, autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def fill(self, name: str, table: pa.Table) -> None:
        """Write a table."""
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.uri) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest(name, table, mode="replace")
            connection.commit()

    @property
    def uri(self) -> str:
        """What libpq takes; the password is in the environment."""
        return f"postgresql://fk@127.0.0.1:{self.port}/loans"


def _as_postgres() -> list[str]:
    """What goes before a command: PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return []
    if not shutil.which("setpriv"):
        pytest.skip("PostgreSQL does not run as root, and there is no setpriv")
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory, loans: pa.Table) -> Iterator[Postgres]:
    """A PostgreSQL server with a password, and the loans in the table ``loans``."""
    pytest.importorskip("adbc_driver_postgresql", reason="needs the extra fairkit[postgresql]")
    if not (shutil.which("initdb") and shutil.which("postgres")):
        pytest.skip("there is no PostgreSQL (initdb, postgres) on PATH")
    before = _as_postgres()
    # not below pytest's folder: only its owner may look into that
    with tempfile.TemporaryDirectory(prefix="fairkit-postgres-") as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        (folder / "password").write_text(SECRETS["PGPASSWORD"])
        if before:
            for path in (folder, folder / "password"):
                shutil.chown(path, "postgres", "postgres")
        told = ["-A", "scram-sha-256", "--pwfile", str(folder / "password"), "-U", "fk", "--no-sync"]
        made = subprocess.run(
            [*before, "initdb", "-D", str(folder / "data"), *told, "-E", "UTF8", "--locale", "C"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        patch.setenv("PGPASSWORD", SECRETS["PGPASSWORD"])
        server, process = _started(before, folder)
        try:
            server.fill("loans", loans)
            yield server
        finally:
            # a connection that a failed command left to the garbage collector must not hold the server up
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _started(before: list[str], folder: Path) -> tuple[Postgres, subprocess.Popen[bytes]]:
    """Start the server on a port that is free; another process may take it in between, so try again."""
    for _ in range(5):
        port = free_port()
        settings = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": folder, "fsync": "off"}
        told = [item for key, value in settings.items() for item in ("-c", f"{key}={value}")]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([*before, "postgres", "-D", str(folder / "data"), *told], stdout=log, stderr=log)
        if _is_ready(Postgres(port), process):
            return Postgres(port), process
        process.wait()
    raise AssertionError("PostgreSQL did not start")


def _is_ready(server: Postgres, process: subprocess.Popen[bytes]) -> bool:
    """Wait for the server and make the database; False where the server ended."""
    from adbc_driver_postgresql import dbapi

    uri = server.uri.removesuffix("loans") + "postgres"
    while process.poll() is None:
        try:
            with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE loans")
        except dbapi.Error:
            time.sleep(0.05)
        else:
            return True
    return False


@pytest.fixture
def postgres(postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Postgres:
    """The server, and an environment in which commands find the password."""
    monkeypatch.setenv("PGPASSWORD", SECRETS["PGPASSWORD"])
    return postgres_server
