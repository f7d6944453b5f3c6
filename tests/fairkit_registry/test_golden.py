"""Files that earlier versions wrote: they are read, verified, and written again with the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from fairkit.results.report import Report
from fairkit_registry.errors import VerificationError
from fairkit_registry.evidence import certificate
from fairkit_registry.evidence import signed as dsse
from fairkit_registry.evidence.recompute import compare_reports, recompute
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.evidence.signed import PolicyLock, SignedTable
from fairkit_registry.evidence.signers import load_public
from fairkit_registry.jsonio import canonical

GOLDEN = Path(__file__).parent / "golden"
CERTIFICATES = {"certificate": "key", "certificate-p256": "p256", "table-certificate": "key", "no-policy": "key"}


def content(name: str) -> bytes:
    return gzip.decompress((GOLDEN / f"{name}.gz").read_bytes())


@pytest.mark.parametrize(("name", "key"), CERTIFICATES.items())
def test_certificates_verify_and_write_the_same_bytes(name, key):
    raw = content(f"{name}.json")
    held = certificate.verify(raw, [load_public(GOLDEN / f"{key}.pub")])
    signed = json.loads(dsse.Envelope.from_bytes(raw).payload)["predicate"]
    again = held.report.to_dict()
    same = set(again) & set(signed) - {"findings"}
    assert {"model", "data", "policy", "verdict", "seed", "confidence", "environment"} <= same
    for part in same:
        assert canonical(again[part]) == canonical(signed[part]), part
    assert len(again["findings"]) == len(signed["findings"]) > 0
    settings = SignedSettings.from_dict(signed["settings"]).to_dict()
    assert canonical(settings) == canonical(signed["settings"])


@pytest.mark.parametrize("name", ["report", "report-auditors"])
def test_reports_write_the_same_bytes(name):
    record = json.loads(content(f"{name}.json"))
    assert canonical(Report.from_dict(record).to_dict()) == canonical(record)


CHANGED = {"log_loss", "ecce", "worst_group_loss"}
"""Metrics whose intervals are wider, or begin lower, than they were then: those did not cover."""


def test_a_certificate_of_then_is_recomputed_now(tmp_path):
    """All numbers are those of then; of the metrics that are measured otherwise now the audit says so."""
    raw = content("certificate.json")
    held = certificate.verify(raw, [load_public(GOLDEN / "key.pub")])
    table = tmp_path / "table.csv"
    table.write_bytes(content("table.csv"))
    data = SignedSettings.from_dict(held.settings).open_data(table)
    again = SignedSettings.from_dict(held.settings).run(str(GOLDEN / "model.onnx"), data)
    assert again.verdict == held.report.verdict == "pass"
    differing = {text.split("/")[1] for text in compare_reports(held.report, again)}
    assert {name for name in differing if not name.startswith(tuple(CHANGED))} == set()
    with pytest.raises(VerificationError, match="other numbers than were signed"):
        recompute(held, GOLDEN / "model.onnx", data)


def test_locks_and_statements_about_tables_are_read():
    lock = PolicyLock.read(content("lock.json"))
    statement = SignedTable.read(content("table-statement.json"))
    assert (lock.name, lock.rows) == (statement.name, statement.rows) == ("table.csv", 400)
    assert lock.data_sha256 == statement.sha256
    model = hashlib.sha256((GOLDEN / "model.onnx").read_bytes()).hexdigest()
    assert certificate.verify(content("certificate.json"), [load_public(GOLDEN / "key.pub")]).model_sha256 == model
