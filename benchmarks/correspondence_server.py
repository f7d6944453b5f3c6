"""Is a planted gap covered whatever a server does? Runs of the whole client for each behaviour of the tests' server.

    python benchmarks/correspondence_server.py [--runs 200] [--only LABEL] [--jobs 2]

Each run asks 30 documents in two contexts under 30 names a group; names, documents and draws are new in each. Printed:
the share of runs whose interval covers the planted gap of 0.10, the mean half-width, and the most that was spent. What
no interval needs is left out: the placebo's random halves of names.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import cache, partial
from pathlib import Path

import httpx

from fairkit_correspondence import evidence
from fairkit_correspondence.asking import Asker
from fairkit_correspondence.charts import by_name
from fairkit_correspondence.client import Client, Server
from fairkit_correspondence.plan import read_plan
from fairkit_correspondence.store import Store

sys.path.insert(0, str(Path(__file__).parents[1]))
tests = importlib.import_module("tests.fairkit_correspondence.test_asking")
FakeServer, write_plan = tests.FakeServer, tests.write_plan
BUDGET = 0.05
MEMORY = Path("/dev/shm")


@cache
def client_of_this_process() -> Client:
    """Return a client whose connection is replaced in every run."""
    evidence.placebo = lambda *_: None
    return Client(Server(url="http://host/v1", model="m"))


def once(label: str, seed: int) -> tuple[float, float, float]:
    """Return the interval's ends and what was spent."""
    behaviour, settings = tests.COVERED[label]
    server = FakeServer(dataclasses.replace(behaviour, seed=seed))
    server.prepare()

    def handler(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(404, json={})
        status, record, more = server.answer(json.loads(request.content))
        raw = record if isinstance(record, bytes) else json.dumps(record).encode()
        return httpx.Response(status, content=raw, headers=more)

    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        plan = read_plan(write_plan(folder, documents=30, names=30, **{"each": 1, **settings}))
        client = client_of_this_process()
        with closing(Store(folder / "a.sqlite", plan.digest, {})) as store:
            client._http = httpx.Client(transport=httpx.MockTransport(handler), trust_env=False, verify=False)
            outcome = Asker(plan, client, store, budget=BUDGET, concurrency=1, sleep=lambda _: None).run()
    finding = next(f for f in outcome.report.findings if not f.within)
    pair = by_name(finding.evidence["correspondence_pairs"])["grey - stone, all contexts"]
    return pair["low"], pair["high"], outcome.spent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=200)
    options.add_argument("--only")
    options.add_argument("--jobs", type=int, default=1)
    chosen = options.parse_args()
    pool = ProcessPoolExecutor(chosen.jobs)
    for label in tests.COVERED:
        if chosen.only not in (None, label):
            continue
        started = time.perf_counter()
        found = list(pool.map(partial(once, label), range(chosen.runs), chunksize=5))
        covered = sum(low < 0.1 < high for low, high, _ in found) / len(found)
        half = sum(high - low for low, high, _ in found) / len(found) / 2
        most = max(spent for *_, spent in found)
        print(
            f"{label:30} covers {covered:.3f}  half-width {half:.3f}  spent at most {most:.4f} of {BUDGET}  "
            f"{time.perf_counter() - started:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
