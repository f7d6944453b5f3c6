"""What checking a certificate costs its reader: the small verifier as a command, and the page in a browser.

    make verify-wheel && python benchmarks/verify_cost.py build/verify/empty/bin/fairkit-verify [--large 2]

The command runs in turn with a bare start of its own Python, whose time no program can go below. The page gets a
certificate of 5,005 findings, and a model of `--large` GiB (a sparse file); Chromium measures from the button to the
answer.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.fairkit_cli.verifier.browser import Browser, chromium  # noqa: E402 -- the tests are beside, not installed

from fairkit_cli.verifier.bundle import page  # noqa: E402
from fairkit_registry import conformance  # noqa: E402
from fairkit_registry.evidence import dsse, signers  # noqa: E402
from fairkit_registry.jsonio import canonical  # noqa: E402

GOLDEN = ROOT / "tests" / "fairkit_registry" / "golden"
COPIES = 385


def seconds(command: list[str], given: str | None = None) -> float:
    """Run a command and return its wall time."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, input=given, text=True)
    return time.perf_counter() - start


def command_cost(verifier: str, folder: Path, repeats: int) -> None:
    """Print the time of a whole check, of the help, and of Python alone."""
    certificate = folder / "certificate.json"
    certificate.write_bytes(gzip.decompress((GOLDEN / "certificate.json.gz").read_bytes()))
    whole = [verifier, str(certificate), "--key", str(GOLDEN / "key.pub"), "--model", str(GOLDEN / "model.onnx")]
    python = str(Path(verifier).parent / "python")
    runs: dict[str, list[float]] = {"whole check": [], "--help": [], "python -c pass": []}
    commands = (whole, [verifier, "--help"], [python, "-c", "pass"])
    for turn in range(repeats + 1):
        for name, command in zip(runs, commands, strict=True):
            took = seconds(command)
            if turn:  # the first of each is not counted
                runs[name].append(took)
    for name, times in runs.items():
        print(f"{name:16s} median {statistics.median(times):.3f} s, best {min(times):.3f} s")
    cases = "".join(json.dumps(one.question()) + "\n" for one in conformance.cases())
    print(f"{len(conformance.cases())} cases of the suite: {seconds([verifier, '--cases'], cases):.2f} s")


def large_certificate(folder: Path) -> dict[str, Path]:
    """Write a certificate of 5,005 findings with its key."""
    (one,) = conformance.cases(["envelope/ed25519"])
    statement = json.loads(dsse.Envelope.from_bytes(base64.b64decode(one.given["file"])).payload)
    body = statement["predicate"]
    body["findings"] = [
        {**finding, "parameters": {"class": str(copy)}} for copy in range(COPIES) for finding in body["findings"]
    ]
    body["policy"], body["verdict"], body["settings"]["policy"] = [], None, []
    signers.new_key_pair(folder / "k")
    key = signers.load_secret(folder / "k")
    signed = dsse.sign(canonical(statement), "application/vnd.in-toto+json", [key])
    (folder / "large.json").write_bytes(signed.to_bytes())
    print(f"certificate of {len(body['findings']):,} findings: {len(signed.to_bytes()) / 1e6:.1f} MB")
    return {"certificate": folder / "large.json", "keys": folder / "k.pub"}


_TIMED = """new Promise(done => {
  const section = document.querySelector("section");
  section.replaceChildren();
  const start = performance.now();
  new MutationObserver((_, watch) => {
    if (!section.querySelector("h2")) return;
    watch.disconnect();
    requestAnimationFrame(() => done((performance.now() - start) / 1000));
  }).observe(section, { childList: true, subtree: true });
  document.querySelector("[type=submit]").click();
})"""


def page_cost(folder: Path, repeats: int, gibibytes: float) -> None:
    """Print how long the page takes for many findings, and for a large model."""
    path = folder / "verify.html"
    path.write_text(page(), "utf-8")
    browser = Browser(folder / "profile")

    def timed(**files: Path) -> float:
        for field, one in files.items():
            browser.give(field, one)
        took: Any = browser.run(_TIMED)
        return float(took)

    try:
        browser.open(path)
        files = large_certificate(folder)
        times = [timed(**files) for _ in range(repeats + 1)][1:]
        print(f"{'the page':16s} median {statistics.median(times):.3f} s, best {min(times):.3f} s")
        model = folder / "large.onnx"
        with model.open("wb") as handle:
            handle.truncate(int(gibibytes * 2**30))
        took = timed(model=model)
        used = browser.run("performance.memory.usedJSHeapSize") / 2**20
        print(f"a model of {gibibytes:g} GiB: {took:.1f} s, {gibibytes * 1024 / took:.0f} MiB/s, heap {used:.0f} MiB")
        print(
            "the page says:", browser.run("document.querySelector('section').innerText.split('\\n').filter(Boolean)[1]")
        )
    finally:
        browser.close()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verifier", help="the installed command fairkit-verify")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--large", type=float, default=2.0, help="GiB of the large model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command_cost(options.verifier, Path(folder), options.repeats)
        if chromium() is None:
            print("no chromium on PATH: the page is not measured")
        else:
            page_cost(Path(folder), options.repeats, options.large)


if __name__ == "__main__":
    main()
