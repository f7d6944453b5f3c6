"""What an audit of an endpoint costs beyond the endpoint's own time.

``python benchmarks/endpoint_cost.py [ROWS]`` starts the tests' server with a model of the loans, audits it with JSON
and with bytes, and prints the time that requests took, the time of everything else, and the same audit of the file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

import fairkit
from fairkit_datasets.loans import loans_table
from fairkit_endpoint.client import Client, EndpointSettings
from fairkit_endpoint.model import EndpointModel

ROOT = Path(__file__).resolve().parents[1]
ROLES = {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}
TEXTS, NUMBERS = ["sex", "region"], ["age", "income", "debt_ratio"]


def model(folder: Path) -> Path:
    """Write a forest on the loans, without ZipMap."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    train = loans_table(8_000, 1).to_pandas()
    columns = make_column_transformer((OneHotEncoder(), TEXTS), remainder="passthrough")
    forest = RandomForestClassifier(60, min_samples_leaf=5, random_state=0, n_jobs=2)
    pipeline = make_pipeline(columns, forest).fit(train[TEXTS + NUMBERS], train["decision"])
    types = [(c, StringTensorType([None, 1])) for c in TEXTS] + [(c, FloatTensorType([None, 1])) for c in NUMBERS]
    proto = convert_sklearn(pipeline, initial_types=types, options={id(pipeline): {"zipmap": False}})
    path = folder / "credit.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def main(rows: int) -> None:
    """Print the table."""
    spent = [0.0]
    send = Client._send

    def timed(self, *told):  # type: ignore[no-untyped-def]
        started = time.perf_counter()
        try:
            return send(self, *told)
        finally:
            spent[0] += time.perf_counter() - started

    Client._send = timed  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = model(folder)
        pq.write_table(loans_table(rows, 2), folder / "loans.parquet")
        started = time.perf_counter()
        fairkit.audit(path, fairkit.load_data(folder / "loans.parquet", **ROLES))
        print(f"the file: {time.perf_counter() - started:.2f} s")
        for form in ([], ["--binary"]):
            server = subprocess.Popen(
                [sys.executable, str(ROOT / "tests" / "endpoints" / "server.py"), str(path), *form],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert server.stdout is not None
            port, spent[0] = server.stdout.readline().strip(), 0.0
            started, used = time.perf_counter(), time.process_time()
            endpoint = EndpointModel(EndpointSettings(url=f"http://127.0.0.1:{port}", model="credit"))
            fairkit.audit(endpoint, fairkit.load_data(folder / "loans.parquet", **ROLES))
            whole, own = time.perf_counter() - started, time.process_time() - used
            print(
                f"{'bytes' if form else 'JSON'}: {whole:.2f} s, of which waiting {spent[0]:.2f} s, the rest "
                f"{(whole - spent[0]) / whole:.0%}; own processor time {own:.2f} s"
            )
            server.kill()
            server.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
