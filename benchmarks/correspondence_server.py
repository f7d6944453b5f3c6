"""Is a planted gap covered whatever a server does? Runs of the whole client for each behaviour of the tests' server.

    python benchmarks/correspondence_server.py [--runs 200] [--only LABEL ...] [--jobs 2] [--output FILE]

Each run asks 30 documents in two contexts under 30 names a group; names, documents and draws are new in each. Printed,
and written into FILE, after every 20 runs of a behaviour: how many there are, the share whose interval covers the
planted gap of 0.10, the mean half-width, and the most that was spent. What no interval needs is left out: the placebo's
random halves of names.
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
EVERY = 20
RESULTS = Path(__file__).parent / "results" / "correspondence_server.json"
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
        with closing(Store(folder / "a.sqlite", plan.digest, "m")) as store:
            client._http = httpx.Client(transport=httpx.MockTransport(handler), trust_env=False, verify=False)
            outcome = Asker(plan, client, store, budget=BUDGET, concurrency=1, sleep=lambda _: None).run()
    finding = next(f for f in outcome.report.findings if not f.within)
    pair = by_name(finding.evidence["correspondence_pairs"])["grey - stone, all contexts"]
    return pair["low"], pair["high"], outcome.spent


def summary(found: list[tuple[float, float, float]]) -> dict[str, float]:
    """Return what is said about the runs of one behaviour."""
    return {
        "runs": len(found),
        "covered": sum(low < 0.1 < high for low, high, _ in found),
        "half_width": round(sum(high - low for low, high, _ in found) / len(found) / 2, 4),
        "spent": round(max(spent for *_, spent in found), 5),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=200)
    options.add_argument("--only", nargs="+", choices=list(tests.COVERED), default=list(tests.COVERED))
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--output", type=Path, default=RESULTS)
    chosen = options.parse_args()
    results = json.loads(chosen.output.read_text()) if chosen.output.exists() else {}
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for label in chosen.only:
            found: list[tuple[float, float, float]] = []
            for first in range(0, chosen.runs, EVERY):
                started = time.perf_counter()
                found += pool.map(partial(once, label), range(first, min(first + EVERY, chosen.runs)))
                one = summary(found)
                if one["runs"] >= results.get(label, one)["runs"]:
                    results[label] = one
                    chosen.output.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
                print(
                    f"{label:30} {one['runs']:3} runs: {one['covered'] / one['runs']:.3f} cover, half-width "
                    f"{one['half_width']:.3f}, spent at most {one['spent']:.4f} of {BUDGET}; "
                    f"{time.perf_counter() - started:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
