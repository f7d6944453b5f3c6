"""Runs operations on a registry in child processes and kills them; the parent test reads the JSON it prints.

It is a program of its own so that it forks from one thread, with everything imported once.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: F401 -- before the forks

from fairkit import plugins  # noqa: F401
from fairkit.results.report import Report
from fairkit_registry import blobs
from fairkit_registry.evidence import recompute as certifying
from fairkit_registry.evidence import signers
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.exchange import describe as importing
from fairkit_registry.promotion import run as promotion
from fairkit_registry.store import registry as maintenance
from fairkit_registry.store import tables
from fairkit_registry.store import tables as events
from fairkit_registry.store.registry import Registry

folder = Path(sys.argv[1])
trials = int(sys.argv[2])
place = folder / "registry"
chosen = sys.argv[3]
SETTINGS = SignedSettings(data={"label": "paid"}).to_dict()
rng = random.Random(7)


def add(trial: int, store: Registry) -> str:
    model = folder / "trial.onnx"
    return store.add("credit", model, certificates=[folder / "trial.json"]).reference


def promote(trial: int, store: Registry) -> str:
    decision = promotion.promote(store, f"credit@{1 + trial % 2}", "production")
    assert decision.verdict == "pass", decision.reasons
    return decision.version.reference


def take_in(trial: int, store: Registry) -> str:
    done = importing.import_archive(store, folder / "archive.tar", name=f"import{trial}")
    return f"import{trial}@{len(done)}"


OPERATIONS = {"add": add, "promote": promote, "import": take_in}


def prepare(trial: int) -> None:
    """Return every trial a model of its own, so that no blob is there already."""
    base = (folder / "base.onnx").read_bytes()
    # field 3 (producer_version) of ModelProto: a string that makes the bytes differ
    note = f"{trial}".encode()
    model = base + bytes([0x1A, len(note)]) + note
    (folder / "trial.onnx").write_bytes(model)
    report = json.loads((folder / "report.json").read_text())
    report["model"]["sha256"] = hashlib.sha256(model).hexdigest()
    raw = certifying.issue(Report.from_dict(report), [signers.load_secret(folder / "signer")], settings=SETTINGS)
    (folder / "trial.json").write_bytes(raw)


def child(operation, trial: int, ack: int, count_down: int | None) -> None:
    """Open the registry, tell the parent, do the operation, acknowledge it."""
    if count_down is not None:
        arm(count_down)
    with Registry(place) as store:
        os.write(ack, b"!")
        reference = operation(trial, store)
        os.write(ack, reference.encode())
    os._exit(0)


def arm(count_down: int) -> None:
    """Die at the n-th of the calls that change something on the disk."""
    left = [count_down]

    def wrap(owner, name):
        original = getattr(owner, name)

        def dying(*arguments, **named):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **named)

        setattr(owner, name, dying)

    wrap(os, "fsync")
    wrap(Path, "replace")
    wrap(Path, "chmod")
    wrap(Path, "unlink")
    wrap(blobs, "sync_folder")
    wrap(events, "canonical")
    wrap(tables, "keep")
    wrap(tables, "own")
    wrap(events, "append")
    wrap(tables, "find_version")
    wrap(Registry, "point")


def run(name: str, trial: int, *, delay: float | None = None, count_down: int | None = None) -> dict:
    prepare(trial)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            child(OPERATIONS[name], trial, writer, count_down)
        finally:
            os._exit(7)
    os.close(writer)
    os.read(reader, 1)
    started = time.perf_counter()
    if delay is not None:
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    spent = time.perf_counter() - started
    reference = os.read(reader, 100).decode()
    os.close(reader)
    return {
        "operation": name,
        "killed": os.WIFSIGNALED(status),
        "code": os.waitstatus_to_exitcode(status),
        "acknowledged": reference,
        "spent": spent,
        "wrong": list(look(name, trial, reference)),
    }


acknowledged: set[str] = set()


def look(name: str, trial: int, reference: str):
    """Say what is wrong with the registry after the kill."""
    with Registry(place) as store:
        result = maintenance.check(store)
        yield from result.problems
        if reference and name != "promote":
            acknowledged.add(reference)
        if reference and name == "promote" and store.version("credit@production").reference != reference:
            yield f"the acknowledged promotion of {reference} is lost"
        known = {v.reference: v for m in store.models() for v in store.versions(m["name"])}
        for one in sorted(acknowledged - set(known)):
            yield f"{one} was acknowledged and is lost"
        for version in known.values():
            if not store.blobs.path(version.model).is_file():
                yield f"{version.reference} has no file"
        imported = [one for one in known if one.startswith(f"import{trial}@")]
        if name == "import" and len(imported) not in (0, 2):
            yield f"half an import: {imported}"


prepare(0)
with Registry(place) as store:  # loads what the operation needs, so that the kills fall inside it
    OPERATIONS[chosen](0, store)
spans = [run(chosen, trial)["spent"] for trial in range(1, 4)]
trial = 3
results = []
span = sorted(spans)[1]
while sum(result["killed"] for result in results) < trials and len(results) < 5 * trials:
    trial += 1
    results.append(run(chosen, trial, delay=rng.uniform(0, span)))
    if not results[-1]["killed"]:  # it was quicker than the delay: the machine has become quicker
        span = max(span / 2, min(span, results[-1]["spent"]))
for count_down in range(1, 200):
    trial += 1
    results.append(run(chosen, trial, count_down=count_down))
    if not results[-1]["killed"]:
        break
with Registry(place) as store:
    before = len(list(store.blobs.temporary.iterdir()))
    for path in store.blobs.temporary.iterdir():
        os.utime(path, (0, 0))
    maintenance.gc(store)
    after = maintenance.check(store)
sys.stdout.write(json.dumps({"results": results, "left": before, "notes": after.notes, "problems": after.problems}))
