"""How quick a registry with many versions is: list, show, add, check.

Prints a table; run by hand. Times of commands are wall clock of whole processes, medians, with the time of
`fairkit registry gc --help` (a process that starts and does nothing) beside them.

    python benchmarks/registry_scale.py [VERSIONS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fairkit_registry.store import tables
from fairkit_registry.store.maintenance import check
from fairkit_registry.store.registry import Registry

ROUNDS = 9


def model(path: Path, size: int, number: int) -> Path:
    """Write an ONNX file of about so many bytes."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(number).normal(size=size // 4).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [len(weights)])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(weights)])],
        [numpy_helper.from_array(weights, "w")],
    )
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return path


def fill(place: Path, small: Path, versions: int) -> float:
    """Add versions in one transaction each thousand, which is quicker than one by one and gives the same rows."""
    started = time.perf_counter()
    with Registry(place, create=True) as store:
        store.add("credit", small)
        done = 1
        while done < versions:
            with store.staging() as staged, store.folder.index.write() as connection:
                for _ in range(min(1000, versions - done)):
                    file = staged.file(small)
                    tables.insert_version(
                        connection,
                        store.blobs,
                        "credit",
                        file,
                        [],
                        filename="m.onnx",
                        parent=None,
                        tags=["t"],
                        notes="",
                    )
                    done += 1
    return time.perf_counter() - started


def command(*arguments: str) -> float:
    """Return the median seconds of a whole process."""
    spent = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", "from fairkit_cli.main import run; run()", *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


def main() -> None:
    versions = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "registry"
        os.environ["FAIRKIT_REGISTRY"] = str(place)
        spent = fill(place, model(Path(folder) / "m.onnx", 1000, 0), versions)
        print(f"{versions} versions in {spent:.1f} s; index {(place / 'index.sqlite').stat().st_size / 1e6:.1f} MB")
        command("--version")  # the first processes read the libraries from the disk
        nothing = command("registry", "check", "--help")
        print(f"fairkit registry gc --help (nothing)   {nothing:.3f} s")
        for arguments in (
            ("registry", "list"),
            ("registry", "list", "credit"),
            ("registry", "list", "credit", "--format", "json"),
            ("registry", "list", "credit", "--limit", "20"),
            ("registry", "show", "credit"),
            ("registry", "show", f"credit@{versions // 2}", "--format", "json"),
            ("registry", "show", "credit", "--log", "--limit", "20"),
        ):
            seconds = command(*arguments)
            print(f"fairkit {' '.join(arguments):<38} {seconds:.3f} s  ({seconds - nothing:.3f} beyond start)")
        large = [model(Path(folder) / f"{number}.onnx", 1_000_000, number) for number in range(1, ROUNDS + 1)]
        with Registry(place) as store:
            spents = []
            for file in large:
                started = time.perf_counter()
                store.add("credit", file)
                spents.append(time.perf_counter() - started)
            print(f"add of 1 MB, in a process              {statistics.median(spents):.4f} s (worst {max(spents):.4f})")
        started = [time.perf_counter()]
        for number, _ in enumerate(large):
            file = model(Path(folder) / "again.onnx", 1_000_000, 100 + number)
            started[-1] = time.perf_counter()
            subprocess.run(
                [
                    sys.executable,
                    "-c",
                    "from fairkit_cli.main import run; run()",
                    "registry",
                    "add",
                    "credit",
                    str(file),
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            started[-1] = time.perf_counter() - started[-1]
            started.append(0.0)
        whole = statistics.median(started[:-1])
        print(f"fairkit registry add of 1 MB           {whole:.3f} s  ({whole - nothing:.3f} beyond start)")
        with Registry(place) as store:
            begun = time.perf_counter()
            result = check(store)
            seconds = time.perf_counter() - begun
            print(
                f"check: {result.versions} versions, {result.events} events, "
                f"{result.size / 1e6:.1f} MB  {seconds:.2f} s"
            )
    hashing(Path(tempfile.gettempdir()))


def hashing(folder: Path) -> None:
    """Compare check on large blobs with hashing the same bytes in memory, which bounds it."""
    import hashlib

    with tempfile.TemporaryDirectory(dir=folder) as place, Registry(Path(place) / "r", create=True) as store:
        for number in range(4):
            store.add("big", model(Path(place) / "m.onnx", 100_000_000, number))
        begun = time.perf_counter()
        result = check(store)
        seconds = time.perf_counter() - begun
        block = os.urandom(100_000_000)
        begun = time.perf_counter()
        hashlib.sha256(block).hexdigest()
        bare = time.perf_counter() - begun
        print(
            f"check of {result.size / 1e6:.0f} MB in 4 files: {result.size / seconds / 1e6:.0f} MB/s; "
            f"sha256 alone {100 / bare:.0f} MB/s"
        )


if __name__ == "__main__":
    main()
