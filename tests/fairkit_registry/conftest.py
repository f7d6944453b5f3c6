from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairkit.results.findings import Finding, GroupValue
from fairkit.results.policy import judge
from fairkit.results.report import DataInfo, ModelInfo, Report
from fairkit.results.rules import Rule
from fairkit_registry.evidence import recompute as certifying
from fairkit_registry.evidence import signers
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.store.registry import Registry

DATA = "d" * 64
SETTINGS = SignedSettings(data={"label": "paid"}).to_dict()


def write_model(path: Path, factor: float, *, width: int = 1) -> Path:
    from onnx import TensorProto, helper

    weights = helper.make_tensor("w", TensorProto.FLOAT, [width], [float(factor)] * width)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, width])],
        [weights],
    )
    path.write_bytes(
        helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    return path


def finding(metric: str, value: float, half: float = 0.01, **changes) -> Finding:
    given = {
        "auditor": "group",
        "metric": metric,
        "sensitive": "sex",
        "value": value,
        "interval": (value - half, value + half),
        "better": "lower",
        "groups": (
            GroupValue(group="f", rows=40, value=value, interval=(value - half, value + half)),
            GroupValue(group="m", rows=60, value=0.0),
        ),
    }
    if changes.get("sensitive", "sex") is None:
        given["groups"] = ()
    return Finding(**(given | changes))


LIMITS = {"pass": 0.1, "fail": 0.001, "inconclusive": 0.05}
"""Limits of the demographic parity difference of `finding` that give these verdicts."""


def judged(findings, verdict, confidence):
    """Judge the rule that gives the verdict; without a verdict what the limit 0.1 gives."""
    wanted = ("demographic_parity_difference", "sex")
    measured = any((one.metric, one.sensitive) == wanted for one in findings)
    if verdict is None or not measured:
        return (), None
    rule = Rule(metric="demographic_parity_difference", sensitive="sex", max=LIMITS.get(verdict, LIMITS["pass"]))
    return judge([rule], findings, confidence=confidence)


def table(name: str = "people.csv", sha256: str = DATA, **changes) -> DataInfo:
    given = {"rows": 100, "dropped_rows": 3, "groups": {"sex": {"f": 40, "m": 60}}}
    return DataInfo(name=name, sha256=sha256, **(given | changes))


def report(path: Path, findings=None, *, verdict="judged", **changes) -> Report:
    found = (finding("demographic_parity_difference", 0.05),) if findings is None else tuple(findings)
    policy, decided = judged(found, verdict, changes.get("confidence", 0.95))
    given = {
        "model": ModelInfo(name=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest(), task="binary"),
        "data": table(),
        "findings": found,
        "policy": policy,
        "verdict": decided,
        "environment": {"fairkit": "0", "python": "3", "plugins": []},
    }
    return Report(**(given | changes))


@pytest.fixture(scope="session")
def signer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    public = signers.new_key_pair(folder / "signer")
    return SimpleNamespace(
        public=public, secret=signers.load_secret(folder / "signer"), path=folder / "signer", pub=folder / "signer.pub"
    )


@pytest.fixture(scope="session")
def stranger(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stranger")
    public = signers.new_key_pair(folder / "k")
    return SimpleNamespace(public=public, secret=signers.load_secret(folder / "k"), pub=folder / "k.pub")


@pytest.fixture
def model(tmp_path):
    def make(factor: float = 1.0, *, width: int = 1) -> Path:
        return write_model(tmp_path / f"model-{factor}-{width}.onnx", factor, width=width)

    return make


@pytest.fixture
def make():
    return SimpleNamespace(report=report, finding=finding, model=write_model, data=DATA, settings=SETTINGS, table=table)


@pytest.fixture
def certify(tmp_path, signer):
    def certify(
        model: Path, findings=None, *, by=None, at=None, settings=None, mitigation=None, seen=None, **changes
    ) -> Path:
        changes |= {} if seen is None else {"model": seen}
        told = settings or SETTINGS | {"confidence": changes.get("confidence", 0.95)}
        same = {"confidence": told["confidence"], "seed": told["seed"], "adjustment": told.get("adjustment")}
        raw = certifying.issue(
            report(model, findings, **(same | changes)),
            [signer.secret] if by is None else list(by),
            settings=told,
            mitigation=mitigation,
            audited_at=at or datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        )
        path = tmp_path / f"certificate-{hashlib.sha256(raw).hexdigest()[:12]}.json"
        path.write_bytes(raw)
        return path

    return certify


@pytest.fixture
def registry(tmp_path):
    with Registry(tmp_path / "registry", create=True) as store:
        yield store
