from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairkit.results.findings import DataInfo, Finding, GroupValue, ModelInfo, Report, RuleResult
from fairkit_registry.evidence import certificate, keys
from fairkit_registry.evidence.settings import AuditSettings
from fairkit_registry.store.registry import Registry

DATA = "d" * 64
SETTINGS = AuditSettings(data={"label": "paid"}).to_dict()


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
    path.write_bytes(helper.make_model(graph).SerializeToString())
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
    return Finding(**(given | changes))


def report(model: Path, findings=None, **changes) -> Report:
    given = {
        "model": ModelInfo(
            name=model.name, sha256=hashlib.sha256(model.read_bytes()).hexdigest(), task="binary"
        ),
        "data": DataInfo(
            name="people.csv", sha256=DATA, rows=100, dropped_rows=3, groups={"sex": {"f": 40, "m": 60}}
        ),
        "findings": (finding("demographic_parity_difference", 0.05),)
        if findings is None
        else tuple(findings),
        "policy": (
            RuleResult(
                metric="demographic_parity_difference",
                sensitive="sex",
                maximum=0.1,
                minimum=None,
                verdict="pass",
                reason="all of it at most 0.1",
            ),
        ),
        "verdict": "pass",
        "environment": {"fairkit": "0", "python": "3", "plugins": []},
    }
    return Report(**(given | changes))


@pytest.fixture(scope="session")
def signer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    public = keys.new_key_pair(folder / "signer")
    return SimpleNamespace(
        public=public,
        secret=keys.load_secret(folder / "signer"),
        path=folder / "signer",
        pub=folder / "signer.pub",
    )


@pytest.fixture(scope="session")
def stranger(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stranger")
    public = keys.new_key_pair(folder / "k")
    return SimpleNamespace(public=public, secret=keys.load_secret(folder / "k"), pub=folder / "k.pub")


@pytest.fixture
def model(tmp_path):
    def make(factor: float = 1.0, *, width: int = 1) -> Path:
        return write_model(tmp_path / f"model-{factor}-{width}.onnx", factor, width=width)

    return make


@pytest.fixture
def make():
    return SimpleNamespace(report=report, finding=finding, model=write_model, data=DATA, settings=SETTINGS)


@pytest.fixture
def certify(tmp_path, signer):
    def certify(
        model: Path, findings=None, *, by=None, at=None, settings=None, mitigation=None, **changes
    ) -> Path:
        raw = certificate.issue(
            report(model, findings, **changes),
            [signer.secret] if by is None else list(by),
            settings=settings or SETTINGS,
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
