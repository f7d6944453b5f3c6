"""Clusters that are not as they should be: lost workers, other versions, missing libraries, no scheduler."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import fairkit
from fairkit.errors import EngineError, MissingExtraError, ParameterError

pytestmark = pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs the extra fairkit[dask]")

ROLES: dict[str, Any] = {"label": "decision", "favorable": "approved", "sensitive": "sex"}
METRIC: dict[str, Any] = {"restricted-dro": {"epsilon": 0.05, "fair_metric": "euclidean", "columns": ["age", "income"]}}


def test_a_worker_killed_in_an_audit(loans_model: Any, write_parts: Any) -> None:
    """Once while rows are scored, once while the certificate is searched: the numbers of one machine."""
    from fairkit.engines import DaskEngine, connected

    table = pq.read_table(loans_model.data).slice(0, 1_600)
    folder = write_parts("loans", table, [300, 600, 900, 1_200])
    asked: dict[str, Any] = {"auditors": ["group", "restricted-dro"], "parameters": METRIC}
    here = fairkit.audit(loans_model.path, fairkit.load_data(folder, **ROLES), **asked)
    with connected(workers=2) as client:
        moments: list[str] = []

        def kill(doing: str, done: int, total: int, **_: float) -> None:
            moment = "scoring" if doing == "scoring rows" else "solving" if "solving" in doing else ""
            if moment and moment not in moments:
                moments.append(moment)
                worker = sorted(client.run(os.getpid).values())[0]
                os.kill(worker, signal.SIGKILL)

        there = fairkit.audit(
            loans_model.path, fairkit.load_data(folder, **ROLES), **asked, engine=DaskEngine(client), progress=kill
        )
    assert moments == ["scoring", "solving"]
    assert len(there.findings) == len(here.findings)
    for one, other in zip(here.findings, there.findings, strict=True):
        assert other.value == pytest.approx(one.value, abs=1e-9, nan_ok=True), one.metric
    assert there.data == here.data


def test_a_missing_scheduler_is_one_message(loans_model: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("fairkit_dask.TIMEOUT", 0.5)
    data = fairkit.load_data(loans_model.data, **ROLES)
    with pytest.raises(EngineError, match=r"tls://127\.0\.0\.1:9 speaks TLS.*distributed\.comm\.tls\.ca-file"):
        fairkit.audit(loans_model.path, data, engine="dask", scheduler="tls://127.0.0.1:9")
    with pytest.raises(EngineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        fairkit.audit(loans_model.path, data, engine="dask", scheduler="tcp://127.0.0.1:9")
    with pytest.raises(ParameterError, match="add `engine=dask`"):
        fairkit.audit(loans_model.path, data, scheduler="tcp://127.0.0.1:9")
    with pytest.raises(ParameterError, match="there is no engine 'spark'"):
        fairkit.audit(loans_model.path, data, engine="spark")


def test_a_scheduler_without_workers(monkeypatch: Any, loans_model: Any) -> None:
    import distributed

    monkeypatch.setattr("fairkit_dask.TIMEOUT", 0.5)
    with distributed.LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", silence_logs=50) as cluster:
        data = fairkit.load_data(loans_model.data, **ROLES)
        with pytest.raises(EngineError, match="has no workers; start some: dask worker"):
            fairkit.audit(loans_model.path, data, engine="dask", scheduler=cluster.scheduler_address)


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("fairkit", "0.0.1", r"has fairkit 0\.0\.1, but here it is .* pip install 'fairkit==.*'"),
        ("", "", r"has no numba; fix it there with: pip install 'fairkit\[individual\]'"),
    ],
)
def test_workers_that_do_not_fit(tmp_path: Path, loans_model: Any, name: str, version: str, message: str) -> None:
    """A worker process that sees another version of fairkit, and one that sees no numba."""
    import distributed

    from fairkit.engines import DaskEngine

    if name:
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    else:
        (tmp_path / "sitecustomize.py").write_text(
            "import importlib.metadata as m\n"
            "every = m.distributions\n"
            "m.distributions = lambda *a, **k: (d for d in every(*a, **k) if d.metadata['Name'] != 'numba')\n"
        )
    environment = {"PYTHONPATH": str(tmp_path)}
    data = fairkit.load_data(loans_model.data, **ROLES)
    with (
        distributed.LocalCluster(
            n_workers=0, dashboard_address="127.0.0.1:0", silence_logs=50, processes=True
        ) as cluster,
        subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address, "--no-nanny",
             "--no-dashboard", "--nthreads", "1"],
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as worker,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        try:
            client.wait_for_workers(1, timeout=30)
            with pytest.raises(EngineError, match=message):
                fairkit.audit(
                    loans_model.path, data, auditors=["restricted-dro"], parameters=METRIC, engine=DaskEngine(client)
                )
        finally:
            worker.kill()


def test_dask_is_an_extra(monkeypatch: Any, loans_model: Any) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fairkit\[dask\]'"):
        fairkit.audit(loans_model.path, fairkit.load_data(loans_model.data, **ROLES), engine="dask")


def test_errors_of_workers_arrive_with_their_message() -> None:
    """What a worker raises arrives with its message."""
    import pickle

    error = pickle.loads(pickle.dumps(MissingExtraError("numba", "individual")))
    assert str(error) == str(MissingExtraError("numba", "individual"))


def test_the_command_gives_the_same_bytes(loans_model: Any, write_parts: Any) -> None:
    """`fairkit audit` on a folder, with and without --engine dask."""
    folder = write_parts("loans", pq.read_table(loans_model.data).slice(0, 2_000), [900])
    code = "import sys; from fairkit_cli.main import run; sys.argv[0] = 'fairkit'; run()"
    command = [sys.executable, "-c", code, "audit", str(loans_model.path), "--data", str(folder / "*.parquet")]
    command += ["--label", "decision", "--favorable", "approved", "--sensitive", "sex", "--format", "json"]
    outputs = [
        subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout
        for more in ([], ["--engine", "dask"])
    ]
    assert outputs[0] == outputs[1]
    assert '"rows": 2000' in outputs[0]


def test_strangers_on_this_machine_get_nothing():
    """Whoever finds the ports of a cluster on this machine cannot speak to it, and it listens here only."""
    import distributed

    from fairkit_dask import connected

    # a cluster of somebody else in this process adds its pages to the settings that it finds
    with connected(workers=1), distributed.LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0"):
        pass
    with connected(workers=1) as client:
        info = client.scheduler_info()
        addresses = [info["address"], *info["workers"]]
        assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
        assert client.submit(len, "abc").result() == 3
        stranger = distributed.Security.temporary()
        for address in addresses:
            for place, security in ((address, stranger), (address.replace("tls", "tcp"), None)):
                with pytest.raises(Exception, match=r"TLS|timed out|Timed out|[Ss]ecurity|certificate|[Cc]onnect"):
                    distributed.Client(place, timeout=2, security=security)
        ports = [one["services"]["dashboard"] for one in (info, *info["workers"].values())]
        for port in ports:
            for page in ("status", "health", "metrics", "info/main/workers.html"):
                with pytest.raises(urllib.error.HTTPError, match="404"):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5)
