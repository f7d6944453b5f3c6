"""How quick models travel: push against skopeo, listing, pulls, a bundle with a timestamp; and kill -9 many times.

Starts docker-registry on this machine. Prints wall and processor seconds of whole processes; where two programs are
compared they run in turn. Run by hand.

    python benchmarks/exchange.py [push|list|verify|kill] [SIZE]
"""

from __future__ import annotations

import importlib.util
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from registry_scale import model

from fairkit_registry.exchange import pushing, remote
from fairkit_registry.oci.address import parse
from fairkit_registry.store.registry import Registry

ROOT = Path(__file__).parents[1]
FAIRKIT = [sys.executable, "-c", "from fairkit_cli.main import run; run()"]


def tests(name: str):
    """Load a module of the tests, for its servers."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / "fairkit_registry" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def timed(command: list[str]) -> tuple[float, float]:
    """Return wall and processor seconds of a process."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{command}\n{done.stdout}{done.stderr}")
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def show(name: str, spent: list[tuple[float, float]]) -> float:
    """Print the medians."""
    wall, cpu = (statistics.median(one[part] for one in spent) for part in (0, 1))
    print(f"{name:<46} wall {wall:7.2f} s   processor {cpu:6.2f} s")
    return wall


def push(folder: Path, host: str, size: int) -> None:
    """Push a model with fairkit and with skopeo, in turn, each time other bytes."""
    policy = folder / "policy.json"
    policy.write_text('{"default":[{"type":"insecureAcceptAnything"}]}')
    ours, theirs, again, pulls = [], [], [], []
    for number in range(5):
        with Registry(folder / "r", create=True) as store:
            store.add("credit", model(folder / "m.onnx", size, number))
        archive = folder / "all.tar"
        other = folder / "other"
        with Registry(other, create=True) as store:
            store.add("credit", model(folder / "m.onnx", size, 1000 + number))
            from fairkit_registry.exchange.archive import export

            export(store, ["credit"], archive)
        shutil.rmtree(other)
        layout = folder / "layout"
        shutil.rmtree(layout, ignore_errors=True)
        layout.mkdir()
        subprocess.run(["tar", "-xf", archive, "-C", layout], check=True)
        address = f"oci+http://{host}/team/ours:{number + 1}"
        command = [*FAIRKIT, "registry", "push", f"credit@{number + 1}", address, "--registry", str(folder / "r")]
        ours.append(timed(command))
        skopeo = ["skopeo", "--policy", str(policy), "copy", "--dest-tls-verify=false", f"oci:{layout}:credit-1"]
        theirs.append(timed([*skopeo, f"docker://{host}/team/theirs:{number + 1}"]))
        again.append(timed(command))
        pulls.append(timed([*FAIRKIT, "registry", "pull", address, "--registry", str(folder / f"p{number}")]))
        shutil.rmtree(folder / f"p{number}")
    first = show(f"fairkit push of {size / 1e6:.0f} MB", ours)
    second = show("skopeo copy of as many, from an unpacked layout", theirs)
    show("fairkit push again (nothing is sent)", again)
    show("fairkit pull", pulls)
    print(f"ratio of the medians {first / second:.2f}")


def listing(folder: Path, host: str, versions: int) -> None:
    """List a repository with many tags, and a registry with many repositories."""
    with Registry(folder / "r", create=True) as store:
        store.add("credit", model(folder / "m.onnx", 1000, 0))
        where = parse(f"oci+http://{host}/many/credit:1")
        pushing.push(store, "credit@1", where)
        from fairkit_registry.oci.client import Client

        with Client(where) as client:
            content = client.manifest("1").content
            for number in range(2, versions + 1):
                client.push_manifest(content, str(number))
    base = [*FAIRKIT, "registry", "list", "credit", "--registry", f"oci+http://{host}/many"]
    show(f"fairkit registry list of {versions} tags", [timed(base) for _ in range(5)])
    show("fairkit --version (nothing)", [timed([*FAIRKIT, "--version"]) for _ in range(5)])


def verifying(folder: Path) -> None:
    """Verify a bundle with a timestamp by a real authority."""
    import pyarrow.parquet as pq

    from fairkit_datasets.loans import loans_table

    stamps = tests("test_timestamps").started(folder)
    pq.write_table(loans_table(2000, 1), folder / "d.parquet")
    os.chdir(folder)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    subprocess.run([*FAIRKIT, "key", "new", "k", "--type", "p256", "--no-passphrase"], check=True)
    certify = ["certify", "--data", "d.parquet", "--predictions", "decision=decision", "--label", "decision"]
    certify += ["--favorable", "approved", "--sensitive", "sex", "--key", "k", "--output", "c.json", "--bundle"]
    subprocess.run([*FAIRKIT, *certify, "--timestamp", stamps.url], check=True, stdout=subprocess.DEVNULL)
    command = ["verify", "c.json", "--key", "k.pub", "--timestamp-root", str(stamps.root)]
    timed([*FAIRKIT, *command])
    show("fairkit verify of a bundle with timestamp", [timed([*FAIRKIT, *command]) for _ in range(9)])
    show("fairkit verify of a bundle", [timed([*FAIRKIT, *command[:-2]]) for _ in range(9)])
    show("fairkit --version (nothing)", [timed([*FAIRKIT, "--version"]) for _ in range(9)])


def killing(folder: Path, host: str, rounds: int) -> None:
    """Kill pushes and pulls at random moments; nothing may be half visible, and the next try goes through."""
    rng = random.Random(0)
    with Registry(folder / "r", create=True) as store:
        for number in range(1, rounds + 1):
            store.add("credit", model(folder / "m.onnx", 2_000_000, number))
    killed = {"push": 0, "pull": 0}
    for number in range(1, rounds + 1):
        address = f"oci+http://{host}/killed/credit:{number}"
        for what in ("push", "pull"):
            place = folder / ("r" if what == "push" else f"p{number}")
            named = [f"credit@{number}", address] if what == "push" else [address]
            command = [*FAIRKIT, "registry", what, *named, "--registry", str(place)]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.1, 1.2))
            process.send_signal(signal.SIGKILL)
            if process.wait() == -signal.SIGKILL:
                killed[what] += 1
            if what == "push":
                from fairkit_registry.oci.client import Client

                with Client(parse(address)) as client:
                    if client.find_manifest(str(number)) is not None:
                        remote.look(parse(address))  # whole, or an error
            elif (place / "index.sqlite").exists():
                with Registry(place) as there:
                    for one in there.models():
                        there.model_path(there.version(one["name"]))
            timed(command)
        shutil.rmtree(folder / f"p{number}", ignore_errors=True)
    print(
        f"killed {killed['push']} of {rounds} pushes and {killed['pull']} of {rounds} pulls: nothing half visible, all"
    )
    print("went through when they were tried again")


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else "all"
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        (folder / "server").mkdir()
        server, host = tests("test_oci").start(folder / "server")
        try:
            if what in ("all", "push"):
                push(folder, host, size or 200_000_000)
            shutil.rmtree(folder / "r", ignore_errors=True)
            if what in ("all", "list"):
                listing(folder, host, size or 1000)
            shutil.rmtree(folder / "r", ignore_errors=True)
            if what in ("all", "kill"):
                killing(folder, host, size or 100)
        finally:
            server.kill()
            server.wait()
        if what in ("all", "verify"):
            verifying(folder)


if __name__ == "__main__":
    main()
