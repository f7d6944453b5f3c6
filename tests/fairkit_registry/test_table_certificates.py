"""Certificates about decisions in a table: they hold, are repeated, and never speak for a model."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import numpy as np
import pytest

import fairkit
from fairkit.results.rules import Rule
from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import certificate, predicate
from fairkit_registry.evidence import signed as dsse
from fairkit_registry.evidence import signed as statements
from fairkit_registry.evidence.recompute import certify, recompute
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.jsonio import canonical
from fairkit_registry.promotion.run import promote
from fairkit_registry.store.index import AliasPolicy

NOW = datetime(2026, 1, 10, tzinfo=UTC)
RULE = Rule(metric="demographic_parity_difference", sensitive="sex", max=0.3)


def log(rows: int = 1_500) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    sex = rng.integers(0, 2, rows)
    return {
        "sex": np.array(["f", "m"], dtype=object)[sex],
        "approved": (rng.random(rows) < 0.4 + 0.1 * sex).astype(int),
    }


def opened(**roles):
    return fairkit.load_data(log(), sensitive=["sex"], predictions={"decision": "approved"}, **roles)


@pytest.fixture
def signed(signer):
    data = opened()
    settings = SignedSettings(data=data.roles.to_dict(), policy=(RULE,))
    raw, _ = certify(None, data, settings, [signer.secret], audited_at=datetime(2026, 1, 9, tzinfo=UTC))
    return raw


def forge(raw, signer, change):
    """Sign a changed statement with the auditor's own key, checksums and all."""
    statement = json.loads(base64.b64decode(json.loads(raw)["payload"]))
    change(statement)
    statement["predicate"]["checksums"] = predicate.checksums(statement["predicate"])
    return dsse.sign(canonical(statement), statements.PAYLOAD_TYPE, [signer.secret]).to_bytes() + b"\n"


def test_it_is_about_the_table_and_is_repeated(signed, signer):
    statement = json.loads(base64.b64decode(json.loads(signed)["payload"]))
    data = opened()
    assert statement["subject"][0]["digest"]["sha256"] == data.learn().sha256
    assert statement["predicate"]["model"] is None
    found = certificate.verify(signed, [signer.public], data_sha256=data.sha256)
    assert found.model_sha256 is None
    assert found.to_dict()["model"] is None
    again = SignedSettings.from_dict(found.settings).open_data(log())
    assert recompute(found, None, again).verdict == "pass"
    other = log() | {"approved": 1 - log()["approved"]}
    with pytest.raises(VerificationError, match="other numbers"):
        recompute(found, None, SignedSettings.from_dict(found.settings).open_data(other))


def test_it_never_speaks_for_a_model(signed, signer, registry, model, tmp_path):
    path = tmp_path / "table.json"
    path.write_bytes(signed)
    with pytest.raises(CertificateError, match="no model was seen"):
        registry.add("credit", model(), certificates=[path])


def test_the_auditor_cannot_make_it_speak_for_a_model(signed, signer, registry, model, tmp_path):
    """Whoever holds the trusted key tries the ways in which a statement about a table could pass for one on a model."""
    digest = registry.blobs.stage([model().read_bytes()]).digest

    def claim_the_models_digest(statement):
        statement["subject"][0]["digest"]["sha256"] = digest
        statement["predicate"]["data"]["sha256"] = digest

    def name_the_model(statement):
        statement["subject"][0] = {"name": "m", "digest": {"sha256": digest}}
        body = statement["predicate"]
        body["model"] = body.pop("predictions") | {"sha256": digest}

    def name_the_model_beside(statement):
        statement["subject"][0]["digest"]["sha256"] = digest
        statement["predicate"]["model"] = {"name": "m", "sha256": digest, "task": "binary"}

    def another_subject(statement):
        statement["subject"][0]["digest"]["sha256"] = digest

    policy = AliasPolicy(keys=(signer.public.pem,), rules=(RULE.to_dict(),))
    for number, change in enumerate((claim_the_models_digest, name_the_model, name_the_model_beside, another_subject)):
        forged = forge(signed, signer, change)
        with pytest.raises(CertificateError):
            certificate.verify(forged, [signer.public], model_sha256=digest)
        path = tmp_path / f"{number}.json"
        path.write_bytes(forged)
        name = f"credit{number}"
        try:
            registry.add(name, model(), certificates=[path])
        except CertificateError:
            continue
        registry.set_alias(name, "production", policy)
        assert promote(registry, f"{name}@1", "production", now=NOW).verdict == "fail", change.__name__


def test_settings_that_read_columns_are_no_models(signed, signer):
    def forget(statement):
        statement["predicate"]["settings"]["data"]["predictions"] = None

    with pytest.raises(CertificateError, match="differ in columns of predictions"):
        certificate.verify(forge(signed, signer, forget), [signer.public])


def test_the_joined_table_is_signed_and_pinned(signer, tmp_path):
    """A doctored table of people: its digest is a setting, which no alias takes without a pin."""
    import pyarrow as pa

    from fairkit_registry.evidence import settings as pins

    ids = np.arange(600)
    rows = pa.table({"who": ids, "approved": (ids % 3 > 0).astype(int)})
    people = pa.table({"who": ids, "sex": np.array(["f", "m"])[ids % 2]})
    doctored = pa.table({"who": ids, "sex": np.array(["f", "m"])[(ids // 2) % 2]})
    about = {"sensitive": ["sex"], "predictions": {"decision": "approved"}, "on": "who"}
    data = fairkit.load_data(rows, join=people, **about)
    settings = SignedSettings(data=data.roles.to_dict())
    raw, _ = certify(None, data, settings, [signer.secret])
    found = certificate.verify(raw, [signer.public])
    assert found.report.data.joined["sha256"] == fairkit.load_data(people).learn().sha256
    again = SignedSettings.from_dict(found.settings)
    recompute(found, None, again.open_data(rows, people))
    with pytest.raises(CertificateError, match="not that of the audit"):
        again.open_data(rows, doctored)
    with pytest.raises(CertificateError, match="name that table"):
        again.open_data(rows)
    assert any("data.join" in text for text in pins.deviations(found.settings, {}))
    pinned = pins.named(found.settings)
    other = SignedSettings(data=fairkit.load_data(rows, join=doctored, **about).roles.to_dict()).to_dict()
    assert any("data.join" in text for text in pins.deviations(other, pinned))
    assert not list(pins.deviations(found.settings, pinned))

    def swap(statement):
        statement["predicate"]["data"]["joined"]["sha256"] = "0" * 64

    with pytest.raises(CertificateError, match="differ in joined table"):
        certificate.verify(forge(raw, signer, swap), [signer.public])


def test_small_groups_have_no_counts_in_a_certificate(signer):
    """What is signed names neither the groups nor their numbers; it is computed again as it was."""
    rng = np.random.default_rng(3)
    people = log()
    people["sex"][:9], people["sex"][9:14] = "inter", "unsaid"
    people["approved"][:14] = rng.integers(0, 2, 14)
    roles = {"sensitive": ["sex"], "predictions": {"decision": "approved"}}
    data = fairkit.load_data(people, **roles, counts_from=10)
    settings = SignedSettings(data=data.roles.to_dict(), policy=(RULE,))
    raw, report = certify(None, data, settings, [signer.secret], audited_at=datetime(2026, 1, 9, tzinfo=UTC))
    text = base64.b64decode(json.loads(raw)["payload"]).decode()
    assert "inter" not in text.replace("interval", "").replace("intersect", "").replace("internal", "")
    assert "unsaid" not in text
    assert report.data.groups["sex"]["(small groups)"] == 14
    verified = certificate.verify(raw, [signer.public])
    recompute(verified, None, settings.open_data(people))

    def tell(statement):
        del statement["predicate"]["settings"]["data"]["counts_from"]

    found = certificate.verify(forge(raw, signer, tell), [signer.public])
    with pytest.raises(CertificateError, match="inter"):
        recompute(found, None, SignedSettings.from_dict(found.settings).open_data(people))
