from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairkit_registry.exchange.layout import export
from fairkit_registry.promotion.run import promote
from fairkit_registry.store.index import AliasPolicy
from fairkit_registry.store.registry import Registry

RANDOM_KILLS = int(os.environ.get("FAIRKIT_KILLS", "30"))
"""For each operation; three operations are killed, and at every step besides."""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("operation", ["add", "promote", "import"])
def test_a_killed_process_leaves_a_clean_registry(operation, tmp_path, model, certify, signer, make):
    """Kill the operation at random moments, and at every single step of it.

    After each kill every blob is hashed, every reference followed and the log replayed.
    """
    with Registry(tmp_path / "source", create=True) as source:
        for factor in (10, 11):
            source.add("other", model(factor), certificates=[certify(model(factor))])
        export(source, ["other"], tmp_path / "archive.tar")
    with Registry(tmp_path / "registry", create=True) as store:
        for factor in (1, 2):
            store.add("credit", model(factor), certificates=[certify(model(factor))])
        store.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem,)))
        assert promote(store, "credit@1", "production").verdict == "pass"
    (tmp_path / "base.onnx").write_bytes(model(3).read_bytes())
    (tmp_path / "report.json").write_text(json.dumps(make.report(model(3)).to_dict()))
    (tmp_path / "signer").write_bytes(signer.path.read_bytes())
    (tmp_path / "signer").chmod(0o600)

    runner = Path(__file__).with_name("crash_runner.py")
    done = subprocess.run(
        [sys.executable, runner, tmp_path, str(RANDOM_KILLS), operation],
        capture_output=True,
        text=True,
        timeout=5 * RANDOM_KILLS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcome = json.loads(done.stdout)
    results = outcome["results"]
    assert [wrong for result in results for wrong in result["wrong"]] == []
    assert [r for r in results if not r["killed"] and r["code"] != 0] == []
    kills = [result for result in results if result["killed"]]
    assert len(kills) >= RANDOM_KILLS
    assert sum(not result["acknowledged"] for result in kills) >= RANDOM_KILLS // 2
    assert (
        outcome["left"] > 0 or operation == "promote"
    )  # kills did leave temporary files, so they did fall inside the operations
    assert outcome["notes"] == []
    assert outcome["problems"] == []
