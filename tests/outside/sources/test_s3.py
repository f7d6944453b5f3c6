"""Object stores against a server that speaks S3: whole commands, files that change, addresses that hold secrets."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from tests.commands import checked, invoke

import fairkit
import fairkit_stores as stores
from fairkit.data.sources import open_source
from fairkit.sources.interface import StoredFile

from .shared import ROLES, SECRETS, no_secret_in

LOADED = {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}


def test_a_file_a_folder_and_a_glob_are_the_local_table(bucket, loans):
    local = fairkit.load_data(loans, **LOADED).learn().sha256
    bucket.write("one.parquet", loans, row_group_size=700)
    bucket.write("parts/b.parquet", loans.slice(1_000))
    bucket.write("parts/a.parquet", loans.slice(0, 1_000))
    bucket.write("parts/_old/c.txt", loans)
    with bucket.filesystem.open_output_stream("data/loans.csv") as sink:
        pacsv.write_csv(loans, sink)
    addresses = ["one.parquet", "loans.csv", "parts", "parts/", "parts/*.parquet", "parts/**/[ab].parquet"]
    found = {key: fairkit.load_data(f"s3://data/{key}", **LOADED).learn().sha256 for key in addresses}
    assert set(found.values()) == {local}


def test_a_csv_column_that_widens_later_is_read_again(bucket):
    table = pa.table({"a": [str(n) for n in range(600_000)] + ["x"], "b": list(range(600_001))})
    with bucket.filesystem.open_output_stream("data/wide.csv") as sink:
        pacsv.write_csv(table, sink, pacsv.WriteOptions(quoting_style="none"))
    found = fairkit.load_data("s3://data/wide.csv")
    assert found.learn().rows == 600_001
    assert found.source.types["a"] == pa.string()


def test_audit_certify_and_recompute(bucket, loans, loans_model, tmp_path):
    address = bucket.write("certified.parquet", loans)
    key, certificate = tmp_path / "key", tmp_path / "c.json"
    invoke("key", "new", key)
    done = checked(
        "--timings", "certify", loans_model.path, "--data", address, *ROLES, "--key", key, "--output", certificate,
        "--max", "demographic_parity_difference:sex=1",
    )  # fmt: skip
    told = ["verify", certificate, "--key", f"{key}.pub", "--model", loans_model.path, "--data", address]
    held = checked(*told, "--recompute", "--format", "json")
    record = json.loads(held.stdout)
    assert "findings, computed again" in record["held"][-1]
    source = record["certificate"]["data"]["source"]
    assert source["kind"] == "s3"
    assert source["address"] == address
    assert source["version"]["ETag"]
    no_secret_in(done.output, held.output, certificate.read_bytes())
    bucket.write("certified.parquet", loans.slice(1))
    changed = checked(*told, code=1)
    assert "refused" in changed.output
    bucket.write("certified.parquet", pa.concat_tables([loans.slice(1), loans.slice(0, 1)]))
    turned = checked(*told, code=1)
    assert "rows that were signed in another order" in turned.output


def test_an_object_replaced_between_two_readings_ends_the_audit(bucket, loans, loans_model):
    address = bucket.write("moving.parquet", loans)
    data = fairkit.load_data(address, **LOADED)
    data.learn()
    bucket.write("moving.parquet", loans.set_column(0, "sex", pa.array(["male", "female"] * 1_500)))
    with pytest.raises(fairkit.DataError, match=r"moving\.parquet was replaced by another file"):
        fairkit.audit(loans_model.path, data)


def test_an_object_replaced_while_it_is_read_ends_the_pass(bucket, loans):
    source = open_source(bucket.write("during.parquet", loans, row_group_size=500))
    batches = source.batches(["sex"], 500)
    next(batches)
    bucket.write("during.parquet", loans.slice(1), row_group_size=500)
    with pytest.raises(fairkit.DataError, match="was replaced by another file while it was read"):
        list(batches)


def test_an_object_removed_between_two_readings(bucket, loans):
    data = fairkit.load_data(bucket.write("leaving.parquet", loans), **LOADED)
    data.learn()
    bucket.filesystem.delete_file("data/leaving.parquet")
    with pytest.raises(fairkit.DataError, match=r"leaving\.parquet was removed"):
        data.read()


def test_the_command_says_one_sentence_and_writes_nothing(bucket, loans, loans_model, tmp_path):
    bucket.write("empty/x.txt", loans)
    output = tmp_path / "report.json"
    for address, said in (
        ("s3://data/none.parquet", "there is no data file s3://data/none.parquet"),
        ("s3://nobucket-here/x.parquet", "there is no bucket 'nobucket-here'"),
        ("s3://data/empty", "holds no .parquet file and no .csv file"),
        ("s3://data/empty/*.csv", "no data file matches"),
        ("s3://data/none?region=eu-west-1&endpoint=http://127.0.0.1:1", "127.0.0.1:1 cannot be reached"),
        ("s3:data/x", "addresses are written s3://bucket/path"),
        ("s3://", "addresses are written s3://bucket/path"),
        ("s3://data/x?anonymous=perhaps", "is true or false"),
        ("s3://data/x?endpoint=nothing://x", "no address such as http://host:port"),
        ("nowhere://data/x", "no source is installed for addresses that begin with nowhere:"),
    ):
        done = checked(
            "audit", loans_model.path, "--data", address, *ROLES, "--output", output, "--format", "json", code=2
        )
        assert said in done.output, address
        assert "\n" not in done.output.strip()
        no_secret_in(done.output)
        assert not output.exists()


@pytest.mark.parametrize(
    "address",
    [
        "s3://AKIAX:{secret}@bucket/x.parquet",
        "s3://{secret}@bucket/x.parquet",
        "s3://bucket/x.parquet?access_key={secret}",
        "s3://bucket/x.parquet?{secret}",
        "s3://bucket/x.parquet?endpoint=http://me:{secret}@127.0.0.1:1",
        "s3://bucket/x.parquet?region=a&region={secret}",
        "S3://AKIAX:{secret}@bucket/x",
        "s3//AKIAX:{secret}@bucket/x",
        "abfs://container@account:{secret}@host/x",
        "abfs://x@account.dfs.core.windows.net/y?sv=2020&sig={secret}",
        "gs://me:{secret}@bucket/x",
        "postgresql://me:{secret}@127.0.0.1/db?query=SELECT 1",
        "postgres://me:{secret}/x@127.0.0.1/db?query=SELECT 1",
        "postgresql://me:12?{secret}@127.0.0.1/db?query=SELECT 1",
        "postgresql://127.0.0.1/db?password={secret}&query=SELECT 1",
        "postgresql://127.0.0.1/db?query=SELECT * FROM dblink('host=x password={secret}') AS t",
        "duckdb:x.db?motherduck_token={secret}",
        "duckdb:md:x?query=SELECT * FROM postgres_scan('postgresql://me:{secret}@h/d', 'a', 'b')",
        "duckdb:x.db?query=SELECT * FROM t WHERE api_key = '{secret}'",
        "delta:s3://AKIAX:{secret}@bucket/x",
        "delta:s3://bucket/x?secret_key={secret}",
        "unknown://me:{secret}@host/x",
        "unknown://host/x?token={secret}",
    ],
)
def test_a_secret_in_an_address_is_refused_and_not_shown(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    (tmp_path / "x.db").write_bytes(b"")
    for secret in ("hunter2-Open", "a/b+c=Open"):
        done = checked("audit", "--data", address.format(secret=secret), "--predictions", "decision=d", code=2)
        assert "Open" not in done.output
        assert done.output.startswith("fairkit: ")


def test_what_a_library_says_is_masked(monkeypatch):
    from fairkit.sources import masked, said

    monkeypatch.setenv("AWS_SESSION_TOKEN", "FwoGZXIvYXdzEJ")
    text = "GET http://me:pw1@h/x?X-Amz-Signature=abc&sig=def failed, token FwoGZXIvYXdzEJ, password='p w' PWD=x"
    for shown in (masked(text), said(OSError(f"\x1b[31m{text}\nmore"))):
        for secret in ("pw1", "abc", "def", "FwoGZXIvYXdzEJ", "p w", "PWD=x"):
            assert secret not in shown
    assert said(OSError("a\nb\x1b[31mc")) == "a bc"
    assert said(KeyError()) == "KeyError"


def test_a_server_that_says_the_key_is_not_quoted(bucket, monkeypatch):
    """An answer that quotes the key, as S3 does for a key that it does not know."""
    key = SECRETS["AWS_ACCESS_KEY_ID"]
    body = f"<Error><Code>InvalidAccessKeyId</Code><Message>Unknown {key}</Message></Error>".encode()
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=_answer, args=(server, body), daemon=True)
        answering.start()
        port = server.getsockname()[1]
        with pytest.raises(fairkit.DataError, match="cannot be read") as caught:
            fairkit.load_data(f"s3://data/x.parquet?endpoint=http://127.0.0.1:{port}")
    no_secret_in(caught.value)


def _answer(server: socket.socket, body: bytes) -> None:
    head = b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nConnection: close\r\nContent-Length: "
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            asked = connection.recv(65_536)
            if asked:
                connection.sendall(
                    head + str(len(body)).encode() + b"\r\n\r\n" + (b"" if asked[:4] == b"HEAD" else body)
                )


def test_a_host_that_never_answers_is_told_about(monkeypatch):
    from fairkit.sources import check_reachable

    with pytest.raises(fairkit.DataError, match="cannot be reached"):
        check_reachable("no.such.host.invalid", 80)
    ended = threading.Event()

    def silent(*_, **__):
        ended.wait(60)
        raise OSError("too late to be told")

    monkeypatch.setattr(socket, "create_connection", silent)
    with pytest.raises(fairkit.DataError, match=r"cannot be reached \(no answer within 0\.2 s\)"):
        check_reachable("127.0.0.1", 80, patience=0.2)  # whatever the library underneath waits for
    ended.set()


def test_a_part_travels_without_credentials(bucket, loans, monkeypatch):
    source = open_source(bucket.write("travels.parquet", loans))
    sent = pickle.dumps(source)
    assert len(sent) < 4_000
    for secret in SECRETS.values():
        assert secret.encode() not in sent
    again = pickle.loads(sent)
    assert sum(batch.num_rows for batch in again.batches(["sex"], 1_000)) == 3_000


def test_the_key_of_an_azure_account_stays_here(monkeypatch):
    pytest.importorskip("pyarrow.fs")
    from pyarrow.fs import AzureFileSystem

    monkeypatch.setenv("AZURE_STORAGE_KEY", "b3Blbi1zZXNhbWUtYXp1cmU=")
    address = fairkit.sources.Address.parse("abfs://box@acct.dfs.core.windows.net/a/b.parquet")
    filesystem, path = stores.store(address)
    assert isinstance(filesystem, AzureFileSystem)
    assert path == "box/a/b.parquet"
    assert b"b3Blbi1zZXNhbWUtYXp1cmU" in pickle.dumps(filesystem)
    again = stores._Again(address.scheme, address.location, ())
    file = StoredFile(filesystem, path, 1, (("ETag", "x"),), again)
    sent = pickle.dumps(file)
    assert b"b3Blbi1zZXNhbWUtYXp1cmU" not in sent
    back = pickle.loads(sent)
    assert isinstance(back.filesystem, AzureFileSystem)
    assert (back.path, back.size, back.stamp) == (file.path, file.size, file.stamp)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("abfs://box@account.example.com/x", "addresses are written abfs://container@account"),
        ("abfs://account.dfs.core.windows.net/x", "addresses are written abfs://container@account"),
        ("abfss://box@acct.dfs.core.windows.net/x?endpoint=http://127.0.0.1:1", "127.0.0.1:1 cannot be reached"),
        ("gs://bucket/x?endpoint=http://127.0.0.1:1", "127.0.0.1:1 cannot be reached"),
        ("gs://bucket@x/y", "a bucket has no '@' in its name"),
    ],
)
def test_other_stores_say_what_is_wrong(text, said):
    with pytest.raises(fairkit.DataError, match=said):
        fairkit.load_data(text)


def test_an_address_of_google_storage_is_resolved(monkeypatch):
    from pyarrow.fs import GcsFileSystem

    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    address = fairkit.sources.Address.parse("gs://bucket/a b/c%20d.parquet?anonymous=true")
    filesystem, path = stores.store(address)
    assert isinstance(filesystem, GcsFileSystem)
    assert path == "bucket/a b/c%20d.parquet"


def test_configuration_compare_and_mitigate(bucket, loans, loans_model, tmp_path, monkeypatch):
    address = bucket.write("configured.parquet", loans)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fairkit.toml").write_text(
        f'[data]\npath = "{address}"\nlabel = "decision"\nfavorable = "approved"\nsensitive = ["sex"]\n'
    )
    audited = checked("audit", loans_model.path, "--format", "json")
    assert json.loads(audited.stdout)["data"]["source"]["address"] == address
    checked("compare", loans_model.path, "--data", loans_model.data, "--against", address)
    checked(
        "mitigate", "--plugin", "reweigh", "--learner", "logistic", "--set", "sensitive=sex", "--output", "fair.onnx"
    )
    assert (tmp_path / "fair.onnx").exists()
    checked("init", address, "--force")
    assert f'path = "{address}"' in (tmp_path / "fairkit.toml").read_text()


def test_a_table_to_join_lies_there(bucket, loans):
    people = pa.table({"id": list(range(3_000)), "kind": ["a", "b"] * 1_500})
    rows = loans.append_column("id", pa.array(range(3_000)))
    joined = fairkit.load_data(
        rows, **{**LOADED, "sensitive": ["kind"]}, join=bucket.write("p.parquet", people), on="id"
    )
    here = fairkit.load_data(rows, **{**LOADED, "sensitive": ["kind"]}, join=people, on="id")
    assert joined.learn().groups == here.learn().groups == {"kind": {"a": 1_500, "b": 1_500}}


# Sources on a cluster: workers read the store themselves, with credentials of their own, and see the snapshots.
@pytest.fixture
def engine(bucket: Any) -> Iterator[Any]:
    """A cluster of one worker, begun in the environment of the test."""
    pytest.importorskip("distributed", reason="needs the extra fairkit[dask]")
    from fairkit.engines import DaskEngine
    from fairkit_dask import connected

    with connected(workers=1) as client:
        yield DaskEngine(client)


def test_every_source_gives_the_same_report_there(
    engine, bucket, loans, loans_model, tmp_path, postgres_server, monkeypatch
):
    monkeypatch.setenv("PGPASSWORD", SECRETS["PGPASSWORD"])
    bucket.write("dask/b.parquet", loans.slice(1_000))
    bucket.write("dask/a.parquet", loans.slice(0, 1_000), row_group_size=300)
    query = "SELECT * FROM loans ORDER BY income, amount, age, debt_ratio"
    addresses = ["s3://data/dask", postgres_server.address(query)]
    try:
        import deltalake
    except ImportError:
        pass
    else:
        deltalake.write_deltalake(tmp_path / "d", loans, partition_by=["sex"])
        addresses.append(f"delta:{tmp_path / 'd'}")
    for address in addresses:
        there = fairkit.audit(loans_model.path, fairkit.load_data(address, **LOADED), engine=engine)
        here = fairkit.audit(loans_model.path, fairkit.load_data(address, **LOADED))
        assert there.data.sha256 == here.data.sha256
        assert dict(there.data.source)["kind"] == dict(here.data.source)["kind"]
        assert [f.value for f in there.findings] == pytest.approx([f.value for f in here.findings], nan_ok=True)


def test_an_object_replaced_under_the_workers(engine, bucket, loans, loans_model):
    data = fairkit.load_data(bucket.write("dask-moving.parquet", loans), **LOADED)
    data.learn()
    bucket.write("dask-moving.parquet", loans.slice(1))
    with pytest.raises(fairkit.FairkitError, match="was replaced by another file"):
        fairkit.audit(loans_model.path, data, engine=engine)
