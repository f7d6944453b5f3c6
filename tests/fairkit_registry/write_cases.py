"""Writes the cases of the conformance suite, registry/conformance/: `python tests/fairkit_registry/write_cases.py`.

A case of a published version is never changed: this writes cases that are not there, and leaves the others alone.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

import fairkit
from fairkit.results.findings import Finding
from fairkit.results.report import Report
from fairkit.results.rules import Rule
from fairkit_registry.conformance import folder
from fairkit_registry.evidence import checkpoints, dsse, issuing, logproofs, revocations, tables
from fairkit_registry.evidence.answering import answer
from fairkit_registry.evidence.heartbeats import sign_heartbeat
from fairkit_registry.evidence.keys import as_public
from fairkit_registry.evidence.locks import sign_lock
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.evidence.signers import KeySigner
from fairkit_registry.evidence.statement import PAYLOAD_TYPE
from fairkit_registry.jsonio import canonical

GOLDEN = Path(__file__).parent / "golden"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW = "2026-01-20T00:00:00+00:00"
DPD = "demographic_parity_difference"
KEPT = {
    "selection_rate",
    "accuracy",
    "true_positive_rate",
    "false_positive_rate",
    "selection_rate_difference",
    "accuracy_difference",
    "true_positive_rate_difference",
    "false_positive_rate_difference",
    "selection_rate_group_min",
    DPD,
    "demographic_parity_ratio",
    "equalized_odds_difference",
    "gap_rms",
}


def _ed25519(name: str) -> KeySigner:
    """Return a key that everybody knows: its secret half is the digest of its name."""
    secret = ed25519.Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
    return KeySigner(secret, as_public(secret.public_key(), name))


def _p256(name: str) -> KeySigner:
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()) >> 1
    secret = ec.derive_private_key(number, ec.SECP256R1())
    return KeySigner(secret, as_public(secret.public_key(), name))


SIGNER, STRANGER, SECOND = (_ed25519(f"fairkit conformance {n}") for n in ("signer", "stranger", "second"))
NIST = _p256("fairkit conformance p256")


def honest(*sensitive: str) -> tuple[Report, dict[str, Any]]:
    """Return an audit of 4,000 made rows with a disparity of about 0.22, and its settings."""
    rng = np.random.default_rng(1)
    sex = np.array(["f", "m"])[rng.integers(0, 2, 4_000)]
    table = {
        "sex": sex,
        "age": np.array(["old", "young"])[rng.integers(0, 2, 4_000)],
        "y": rng.integers(0, 2, 4_000),
        "s": np.clip(rng.random(4_000) + 0.22 * (sex == "m") - 0.11, 0, 1) >= 0.5,
    }
    named = list(sensitive or ("sex",))
    roles = {"label": "y", "favorable": 1, "sensitive": named, "predictions": {"decision": "s"}}
    return audited(table, roles, Rule(metric=DPD, sensitive="sex", max=0.3))


def audited(table: Any, roles: Any, *rules: Rule, **more: Any) -> tuple[Report, dict[str, Any]]:
    """Audit predictions in a table; only findings about rates stay, without notes, which keeps a case small."""
    table = {name: np.asarray(column) for name, column in table.items()}
    data = fairkit.load_data(table, **roles)
    report = Report.from_dict(fairkit.audit(None, data, policy=rules, **more).to_dict())
    short = [one for one in report.findings if report.model.task != "binary" or one.metric in KEPT or not one.plain]
    small = tuple(replace(one, notes=()) for one in short)
    settings = SignedSettings(data=data.roles.to_dict(), policy=tuple(rules), **more)
    return replace(report, findings=small), settings.to_dict()


def change(report: Report, metric: str, sensitive: str | None = "sex", **changes: Any) -> Report:
    """Change one finding; a function makes the new value of what was."""

    def one(finding: Finding) -> Finding:
        if (finding.metric, finding.sensitive) != (metric, sensitive):
            return finding
        made = {k: v(getattr(finding, k)) if callable(v) else v for k, v in changes.items()}
        return replace(finding, **made)

    return replace(report, findings=tuple(map(one, report.findings)))


def drop(report: Report, metric: str, sensitive: str) -> Report:
    """Leave one finding out."""
    kept = [f for f in report.findings if (f.metric, f.sensitive) != (metric, sensitive)]
    return replace(report, findings=tuple(kept))


def grouped(index: int, **changes: Any) -> Callable[[Any], Any]:
    """Change one of a finding's groups."""
    return lambda groups: tuple(
        replace(group, **changes) if place == index else group for place, group in enumerate(groups)
    )


def ruled(report: Report, **changes: Any) -> Report:
    """Return the same results of other rules."""
    records = [result.rule.to_dict() | changes for result in report.policy]
    results = zip(report.policy, map(Rule.from_dict, records), strict=True)
    return replace(report, policy=tuple(replace(result, rule=rule) for result, rule in results))


def foreign(report: Report) -> Report:
    """Add a finding that only another auditor makes, under the name of one that ran."""
    gap = Finding(auditor="group", metric="performance_gap", value=0.01, interval=(0.0, 0.02), better="lower")
    return replace(report, findings=(*report.findings, gap))


def shifted(value: float) -> Callable[[Any], Any]:
    """Move both ends of an interval."""
    return lambda pair: (pair[0] + value, pair[1] + value)


CONTRADICTIONS: dict[str, tuple[Callable[[Report], Report], str]] = {
    "value-above-its-interval": (
        lambda r: change(r, DPD, interval=(0.0, 0.05)),
        "A value above its own interval is refused.",
    ),
    "value-below-its-interval": (
        lambda r: change(r, DPD, interval=(0.25, 0.3)),
        "A value below its own interval is refused.",
    ),
    "interval-narrower-than-the-groups-allow": (
        lambda r: change(r, DPD, interval=lambda pair: (sum(pair) / 2 - 0.005, sum(pair) / 2 + 0.005)),
        "An interval that is narrower than those of the groups allow is refused.",
    ),
    "interval-reversed": (
        lambda r: change(r, DPD, interval=lambda pair: pair[::-1]),
        "An interval whose ends are swapped is refused.",
    ),
    "interval-elsewhere": (
        lambda r: change(r, DPD, interval=(-9.0, -8.0)),
        "An interval that has nothing to do with the value is refused.",
    ),
    "interval-beyond-the-range": (
        lambda r: change(r, DPD, interval=(0.0, 9.0)),
        "An interval beyond the range of the metric is refused.",
    ),
    "value-out-of-range": (
        lambda r: change(r, DPD, value=-0.1, interval=(-0.2, 0.1)),
        "A value that the metric cannot have is refused.",
    ),
    "difference-that-the-groups-do-not-give": (
        lambda r: change(r, DPD, value=0.01, interval=(0.0, 0.02)),
        "A disparity that does not follow from the groups' own numbers is refused.",
    ),
    "ratio-that-the-groups-do-not-give": (
        lambda r: change(r, "demographic_parity_ratio", value=0.99, interval=(0.98, 1.0)),
        "A ratio that does not follow from the groups' own numbers is refused.",
    ),
    "interval-that-the-counts-do-not-give": (
        lambda r: change(r, DPD, interval=lambda pair: (pair[0], pair[1] + 2e-5)),
        "An interval that is a little off what the signed counts give is refused.",
    ),
    "ratio-interval-that-the-counts-do-not-give": (
        lambda r: change(r, "demographic_parity_ratio", interval=lambda pair: (pair[0] + 1e-4, pair[1])),
        "A ratio's interval that is a little off what the signed counts give is refused.",
    ),
    "group-interval-that-its-count-does-not-give": (
        lambda r: change(
            r,
            DPD,
            groups=lambda groups: (
                replace(groups[0], interval=(groups[0].interval[0] + 1e-4, groups[0].interval[1])),
                *groups[1:],
            ),
        ),
        "A group's interval that is not that of its count is refused.",
    ),
    "group-value-outside-its-interval": (
        lambda r: change(r, "accuracy_difference", groups=grouped(0, interval=(0.9, 0.95))),
        "A group's value outside its own interval is refused.",
    ),
    "one-group-only": (
        lambda r: change(r, DPD, groups=lambda groups: groups[:1]),
        "A finding that lacks a group of the data is refused.",
    ),
    "no-groups": (lambda r: change(r, DPD, groups=()), "A disparity without groups is refused."),
    "a-group-twice": (
        lambda r: change(r, DPD, groups=lambda g: (g[0], g[0])),
        "A finding that has one group twice is refused.",
    ),
    "other-rows-in-a-group": (
        lambda r: change(r, DPD, groups=grouped(0, rows=17)),
        "A group that has other rows than in the data is refused.",
    ),
    "groups-that-do-not-add-up": (
        lambda r: replace(r, data=replace(r.data, groups={**r.data.groups, "sex": {"f": 1, "m": 2}})),
        "Groups whose rows do not add up to those of the table are refused.",
    ),
    "a-foreign-auditor": (
        lambda r: change(r, DPD, auditor="evil"),
        "A finding by an auditor that the settings do not name is refused.",
    ),
    "a-foreign-metric": (foreign, "A metric that only another auditor measures is refused."),
    "a-bound-that-no-group-metric-has": (
        lambda r: change(r, DPD, evidence={"upper_confidence_bound": 0.01}),
        "A one-sided bound where there is none, which a policy would be judged by, is refused.",
    ),
    "bounds-that-are-none": (
        lambda r: change(r, DPD, evidence={"missing_bounds": "none"}),
        "Evidence about missing values that is no bound is refused.",
    ),
    "pass-over-failing-findings": (lambda r: ruled(r, max=0.05), "A verdict that the findings do not give is refused."),
    "verdict-that-its-rules-do-not-give": (
        lambda r: replace(r, verdict="fail"),
        "A verdict that is not the worst of its rules' is refused.",
    ),
    "no-verdict-over-rules": (lambda r: replace(r, verdict=None), "Rules without a verdict over them are refused."),
    "rule-on-what-was-not-measured": (
        lambda r: ruled(r, metric="dif"),
        "A rule about a number that is not in the statement is refused.",
    ),
    "rules-other-than-in-the-settings": (
        lambda r: ruled(r, max=0.29),
        "A policy other than the one in the settings is refused.",
    ),
    "lower-confidence": (
        lambda r: change(r, DPD, confidence=0.5),
        "A finding at a lower confidence than the audit's is refused.",
    ),
    "another-seed": (lambda r: replace(r, seed=3), "A report with another seed than its settings is refused."),
    "a-finding-twice": (
        lambda r: replace(r, findings=(*r.findings, r.find(DPD, "sex"))),
        "A finding that is there twice, of which the reader would have to choose one, is refused.",
    ),
    "a-disparity-left-out": (
        lambda r: drop(r, DPD, "age"),
        "A disparity that was left out for one sensitive column is refused.",
    ),
    "overall-rate-outside-the-groups": (
        lambda r: change(r, "selection_rate", None, value=0.99, interval=(0.98, 1.0)),
        "A rate over all rows that lies outside those of the groups is refused.",
    ),
    "overall-rate-that-the-groups-do-not-give": (
        lambda r: change(r, "selection_rate", None, value=lambda v: v + 0.01, interval=(0.0, 1.0)),
        "A rate over all rows that is not the mean of the groups is refused.",
    ),
    "equalized-odds-below-its-parts": (
        lambda r: change(r, "equalized_odds_difference", value=0.001, interval=(0.0, 0.002)),
        "Equalized odds below the two rates that they are made of are refused.",
    ),
    "gap-rms-below-its-parts": (
        lambda r: change(r, "gap_rms", value=0.001, interval=(0.0, 0.002)),
        "A root mean square gap below the two rates that it is made of is refused.",
    ),
    "higher-is-better": (
        lambda r: change(r, DPD, better="higher"),
        "A finding that says that the other direction is better is refused.",
    ),
    "interval-without-a-value": (lambda r: change(r, DPD, value=None), "An interval without a value is refused."),
    "a-count-that-is-not-whole": (
        lambda r: replace(
            r,
            findings=tuple(
                replace(f, groups=tuple(replace(g, denominator=g.denominator + 0.5) for g in f.groups if g.denominator))
                if f.metric == "true_positive_rate_difference" and f.sensitive == "sex"
                else f
                for f in r.findings
            ),
        ),
        "A rate over a number of people that is not whole is refused.",
    ),
}


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def signed(report: Report, settings: Any, *signers: KeySigner, **more: Any) -> bytes:
    """Sign a report at the suite's time."""
    by = signers or (SIGNER,)
    return issuing.issue(report, list(by), settings=settings, **({"audited_at": AT} | more))


def resigned(
    raw: bytes,
    edit: Callable[[dict[str, Any]], Any] | None = None,
    *,
    text: Callable[[bytes], bytes] | None = None,
    by: KeySigner = SIGNER,
    kind: str = PAYLOAD_TYPE,
) -> bytes:
    """Change a statement and sign it anew, as whoever has the key could."""
    payload = dsse.Envelope.from_bytes(raw).payload
    if edit is not None:
        statement = json.loads(payload)
        edit(statement)
        payload = canonical(statement)
    payload = payload if text is None else text(payload)
    return dsse.sign(payload, kind, [by]).to_bytes()


def case(protects: str, raw: bytes, *keys: KeySigner, kind: str = "certificate", **given: Any) -> dict[str, Any]:
    """Return a case whose answer this verifier gives; `expect` in the caller says what it must be."""
    pems = [one.public.pem for one in keys or (SIGNER,)]
    return {"protects": protects, "kind": kind, "input": {"file": _text(raw), "keys": pems, "now": NOW, **given}}


def certificates() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield name, case and the expected answer of what is about one certificate."""
    report, settings = honest_once = honest()
    raw = signed(report, settings)
    record = json.loads(raw)
    yield ("envelope/ed25519", case("A sound certificate by a trusted ed25519 key is accepted.", raw), "verified")
    yield (
        "envelope/p256",
        case("A sound certificate by a trusted ECDSA P-256 key is accepted.", signed(report, settings, NIST), NIST),
        "verified",
    )
    high = dsse.Envelope.from_bytes(signed(report, settings, NIST))
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

    r, s = decode_dss_signature(high.signatures[0].sig)
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    other = replace(high, signatures=(dsse.Signature(sig=encode_dss_signature(r, order - s)),))
    yield (
        "envelope/p256-other-s",
        case(
            "Both values of s of an ECDSA signature are accepted: DSSE asks for no canonical form.",
            other.to_bytes(),
            NIST,
        ),
        "verified",
    )
    raw_rs = replace(high, signatures=(dsse.Signature(sig=r.to_bytes(32) + s.to_bytes(32)),))
    yield (
        "envelope/p256-raw-signature",
        case("An ECDSA signature that is not in DER is refused.", raw_rs.to_bytes(), NIST),
        "refused signature",
    )
    yield (
        "envelope/two-signatures",
        case("Of two signatures both trusted keys are named.", signed(report, settings, SIGNER, NIST), SIGNER, NIST),
        "verified",
    )
    yield (
        "envelope/two-signatures-one-trusted",
        case("Of two signatures only that of the trusted key counts.", signed(report, settings, STRANGER, SIGNER)),
        "verified",
    )
    yield (
        "envelope/wrong-key",
        case("A certificate by a key that nobody trusts is refused.", signed(report, settings, STRANGER)),
        "refused signature",
    )
    yield (
        "envelope/wrong-kind-of-key",
        case("A signature is not checked with a key of another kind.", raw, NIST),
        "refused signature",
    )
    lying = record | {"signatures": [{**record["signatures"][0], "keyid": STRANGER.public.keyid}]}
    yield (
        "envelope/key-id-lies",
        case(
            "The key id is a hint and decides nothing: a wrong one hides no good signature.", json.dumps(lying).encode()
        ),
        "verified",
    )
    claimed = json.loads(signed(report, settings, STRANGER))
    claimed["signatures"][0]["keyid"] = SIGNER.public.keyid
    yield (
        "envelope/key-id-claims",
        case(
            "The key id is a hint and decides nothing: a trusted one makes no signature good.",
            json.dumps(claimed).encode(),
        ),
        "refused signature",
    )
    embedded = claimed | {
        "publicKey": SIGNER.public.pem,
        "signatures": [{**claimed["signatures"][0], "cert": STRANGER.public.pem, "publicKey": STRANGER.public.pem}],
    }
    yield (
        "envelope/embedded-key",
        case("A key inside the file is never used.", json.dumps(embedded).encode()),
        "refused signature",
    )
    yield (
        "envelope/wrong-payload-type",
        case("A signed document of another type is no certificate.", resigned(raw, kind="application/json")),
        "refused signature",
    )
    yield (
        "envelope/payload-type-swapped",
        case(
            "The payload type is part of what is signed.",
            json.dumps(record | {"payloadType": "application/vnd.in-toto+json "}).encode(),
        ),
        "refused signature",
    )
    payload = base64.b64decode(record["payload"])
    flipped = payload.replace(b'"seed":0', b'"seed":1', 1)
    yield (
        "envelope/payload-flipped",
        case("A changed byte of the statement is refused.", json.dumps(record | {"payload": _text(flipped)}).encode()),
        "refused signature",
    )
    bad = bytearray(base64.b64decode(record["signatures"][0]["sig"]))
    bad[3] ^= 1
    yield (
        "envelope/signature-flipped",
        case(
            "A changed bit of the signature is refused.",
            json.dumps(record | {"signatures": [{"sig": _text(bytes(bad)), "keyid": ""}]}).encode(),
        ),
        "refused signature",
    )
    yield (
        "envelope/no-signature",
        case("An envelope without a signature is refused.", json.dumps(record | {"signatures": []}).encode()),
        "refused form",
    )
    yield (
        "envelope/empty-signature",
        case(
            "An empty signature is refused.", json.dumps(record | {"signatures": [{"sig": "", "keyid": ""}]}).encode()
        ),
        "refused signature",
    )
    doubled = raw.rstrip()[:-1] + b',"payload":"' + record["payload"].encode() + b'"}'
    yield (
        "envelope/duplicate-key",
        case("A key that stands twice in an object, which parsers read differently, is refused.", doubled),
        "refused form",
    )
    yield (
        "envelope/spaces",
        case(
            "An envelope that is written with other spaces is the same certificate.",
            json.dumps(record, indent=3).encode(),
        ),
        "verified",
    )
    safe = json.dumps(record | {"payload": record["payload"].replace("+", "-").replace("/", "_")}).encode()
    yield ("envelope/url-safe-base64", case("Both alphabets of base64 are read, as DSSE says.", safe), "verified")
    yield (
        "envelope/damaged-base64",
        case(
            "A payload that is no base64 is refused.",
            json.dumps(record | {"payload": record["payload"][:-8] + "?!..===="}).encode(),
        ),
        "refused form",
    )
    yield ("envelope/not-json", case("A file that is no JSON is refused.", b"\x00\x01certificate"), "refused form")
    yield "envelope/empty", case("An empty file is refused.", b""), "refused form"
    yield "envelope/a-list", case("A JSON list is no certificate.", b"[]"), "refused form"
    yield (
        "envelope/deep",
        case(
            "JSON that is nested a hundred thousand times is refused without a crash.", b"[" * 100_000 + b"]" * 100_000
        ),
        "refused form",
    )
    yield (
        "envelope/no-keys",
        {
            **case("Without a trusted key nothing is verified.", raw),
            "input": {"file": _text(raw), "keys": [], "now": NOW},
        },
        "refused form",
    )
    # statements
    yield (
        "statement/duplicate-key",
        case(
            "A key that stands twice in the signed statement is refused, whoever signed it.",
            resigned(raw, text=lambda p: p.replace(b'"seed":0', b'"seed":0,"seed":1', 1)),
        ),
        "refused form",
    )
    yield (
        "statement/nan",
        case(
            "NaN in the signed statement is refused.",
            resigned(raw, text=lambda p: p.replace(b'"seed":0', b'"seed":NaN', 1)),
        ),
        "refused form",
    )
    yield (
        "statement/number-too-large",
        case(
            "A number that no float holds is refused.",
            resigned(raw, text=lambda p: p.replace(b'"seed":0', b'"seed":' + b"9" * 5_000, 1)),
        ),
        "refused form",
    )
    yield (
        "statement/infinite-float",
        case(
            "1e400, which some parsers read as infinity, is refused.",
            resigned(raw, text=lambda p: p.replace(b'"confidence":0.95', b'"confidence":1e400', 1)),
        ),
        "refused form",
    )
    yield (
        "statement/deep",
        case(
            "A signed statement that is nested without end is refused without a crash.",
            dsse.sign(b'{"a":' * 50_000 + b"1" + b"}" * 50_000, PAYLOAD_TYPE, [SIGNER]).to_bytes(),
        ),
        "refused form",
    )
    yield (
        "statement/not-utf8",
        case(
            "A statement that is not UTF-8 is refused.",
            dsse.sign(b'{"_type":"\xff"}', PAYLOAD_TYPE, [SIGNER]).to_bytes(),
        ),
        "refused form",
    )
    yield (
        "statement/other-predicate",
        case(
            "A signed statement with another predicate is no certificate.",
            resigned(raw, lambda s: s.update(predicateType="https://slsa.dev/provenance/v1")),
        ),
        "refused form",
    )
    yield (
        "statement/other-statement-type",
        case(
            "A statement of another in-toto version is refused.",
            resigned(raw, lambda s: s.update(_type="https://in-toto.io/Statement/v0.1")),
        ),
        "refused form",
    )
    yield (
        "statement/two-subjects",
        case(
            "A statement about two subjects is refused: each reader would take another.",
            resigned(raw, lambda s: s["subject"].append(dict(s["subject"][0]))),
        ),
        "refused form",
    )
    yield (
        "statement/no-subject",
        case("A statement without a subject is refused.", resigned(raw, lambda s: s.update(subject=[]))),
        "refused form",
    )
    yield (
        "statement/subject-and-report-differ",
        case(
            "A statement whose subject and report name two tables is refused.",
            resigned(raw, lambda s: s["subject"][0]["digest"].update(sha256="0" * 64)),
        ),
        "refused signature",
    )
    yield (
        "statement/no-settings",
        case("A certificate without its settings is refused.", resigned(raw, lambda s: s["predicate"].pop("settings"))),
        "refused form",
    )
    yield (
        "statement/value-is-text",
        case(
            "A finding whose value is text is refused.",
            resigned(raw, lambda s: s["predicate"]["findings"][0].update(value="0.1")),
        ),
        "refused form",
    )
    yield (
        "statement/confidence-out-of-range",
        case("A confidence of 1 is refused.", resigned(raw, lambda s: s["predicate"].update(confidence=1))),
        "refused form",
    )
    yield (
        "statement/time-without-zone",
        case(
            "A time without a zone is refused.",
            resigned(raw, lambda s: s["predicate"].update(auditedAt="2026-01-02T03:04:05")),
        ),
        "refused form",
    )
    yield (
        "statement/rows-of-people",
        case(
            "Evidence that holds rows of the table is refused.",
            resigned(raw, lambda s: s["predicate"]["findings"][0]["evidence"].update(rows=[{"name": "Ann", "age": 3}])),
        ),
        "refused form",
    )
    yield (
        "statement/unknown-keys",
        case(
            "Keys that a later version adds to the envelope are passed over.",
            json.dumps(record | {"later": 1}).encode(),
        ),
        "verified",
    )
    # subjects
    digest = hashlib.sha256(b"a model").hexdigest()
    named = replace(report, model=replace(report.model, name="m.onnx", sha256=digest, predictions={}))
    about = signed(named, settings | {"data": settings["data"] | {"predictions": None}})
    data = report.data.sha256
    yield (
        "subject/the-model",
        case("A certificate about this model is accepted.", about, model_sha256=digest),
        "verified",
    )
    yield (
        "subject/another-model",
        case("A certificate about another model is refused.", about, model_sha256="1" * 64),
        "refused signature",
    )
    yield (
        "subject/the-table",
        case("A certificate about this table is accepted.", about, data_sha256=data),
        "verified",
    )
    yield (
        "subject/another-table",
        case("A certificate about another table is refused.", about, data_sha256="2" * 64),
        "refused signature",
    )
    yield (
        "subject/no-model-was-seen",
        case("A certificate about predictions in a table says nothing about any model.", raw, model_sha256=digest),
        "refused signature",
    )
    # bundles
    bundle = json.loads(dsse.Envelope.from_bytes(raw).to_bundle())
    yield (
        "bundle/sound",
        case("A certificate in a Sigstore bundle is the same certificate.", json.dumps(bundle).encode()),
        "verified",
    )
    yield (
        "bundle/no-envelope",
        case(
            "A bundle without an envelope is refused.",
            json.dumps({k: v for k, v in bundle.items() if k != "dsseEnvelope"}).encode(),
        ),
        "refused form",
    )
    two = json.loads(json.dumps(bundle))
    two["dsseEnvelope"]["signatures"] *= 2
    yield (
        "bundle/two-signatures",
        case("A bundle has one signature; one with two is refused.", json.dumps(two).encode()),
        "refused form",
    )
    hint = json.loads(json.dumps(bundle))
    hint["verificationMaterial"]["publicKey"]["hint"] = STRANGER.public.keyid
    yield ("bundle/hint-lies", case("The hint of a bundle decides nothing.", json.dumps(hint).encode()), "verified")
    inner = json.loads(json.dumps(bundle))
    inner["verificationMaterial"]["x509CertificateChain"] = {"certificates": [{"rawBytes": "AAAA"}]}
    yield (
        "bundle/embedded-certificate",
        case("A certificate inside a bundle is nobody's choice but its maker's.", json.dumps(inner).encode()),
        "verified",
    )
    stamped = json.loads(json.dumps(bundle))
    stamped["verificationMaterial"]["timestampVerificationData"] = {"rfc3161Timestamps": "x"}
    yield (
        "bundle/damaged-timestamps",
        case("A bundle whose timestamps cannot be read is refused.", json.dumps(stamped).encode()),
        "refused form",
    )
    # contradictions
    wide = honest("sex", "age")
    for name, (forge, protects) in CONTRADICTIONS.items():
        report, settings = wide if name == "a-disparity-left-out" else honest_once
        yield (f"contradiction/{name}", case(protects, signed(forge(report), settings)), "refused contradiction")
    for verdict, limit in (("fail", 0.05), ("inconclusive", 0.22)):
        again, told = audited_again(limit)
        yield (
            f"verdict/{verdict}",
            case(f"A sound certificate whose policy is {verdict} is verified, and says so.", signed(again, told)),
            f"verified {verdict}",
        )
    # revocation
    yield from revoked(report, settings, raw, about, digest)
    yield from stamped_cases(raw)
    yield from of_every_kind()


def stamped_cases(raw: bytes) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield cases about timestamps, by an authority that `openssl ts` plays; none where it is not installed."""
    import shutil
    import subprocess

    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from tests.fairkit_registry.test_timestamps import CONFIG, issued

    if shutil.which("openssl") is None:
        print("no openssl: no cases about timestamps")
        return
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    root_key, key, stranger_key = (rsa.generate_private_key(65537, 2048) for _ in range(3))
    root = issued("root", root_key, None, root_key, authority=True)
    foreign = issued("another root", stranger_key, None, stranger_key, authority=True).public_bytes(pem).decode()
    envelope = dsse.Envelope.from_bytes(raw)
    with tempfile.TemporaryDirectory() as place:
        box = Path(place)
        (box / "tsa.pem").write_bytes(issued("tsa", key, root, root_key, authority=False).public_bytes(pem))
        (box / "tsa.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        (box / "serial").write_text("01\n")
        (box / "tsa.cnf").write_text(CONFIG.format(folder=box))

        def token(message: bytes) -> bytes:
            (box / "m").write_bytes(message)
            for command in (
                ["openssl", "ts", "-query", "-data", "m", "-sha256", "-cert", "-out", "q"],
                ["openssl", "ts", "-reply", "-config", "tsa.cnf", "-queryfile", "q", "-out", "r"],
            ):
                subprocess.run(command, cwd=box, check=True, capture_output=True)
            return (box / "r").read_bytes()

        good, other = token(envelope.signatures[0].sig), token(b"something else")
        future = dsse.Envelope.from_bytes(
            resigned(raw, lambda s: s["predicate"].update(auditedAt="2039-01-01T00:00:00Z"))
        )
        dated = replace(future.signatures[0], timestamps=(token(future.signatures[0].sig),))
    trusted = root.public_bytes(pem).decode()

    def with_token(*tokens: bytes) -> bytes:
        one = replace(envelope.signatures[0], timestamps=tokens)
        return replace(envelope, signatures=(one,)).to_bytes()

    stamped = with_token(good)
    yield (
        "timestamp/sound",
        case(
            "A timestamp by a trusted authority proves since when the signature exists.",
            stamped,
            timestamp_roots=[trusted],
        ),
        "verified",
    )
    yield (
        "timestamp/in-a-bundle",
        case(
            "A timestamp in a Sigstore bundle counts as one in an envelope.",
            dsse.Envelope.from_bytes(stamped).to_bundle(),
            timestamp_roots=[trusted],
        ),
        "verified",
    )
    yield (
        "timestamp/not-asked",
        case("A timestamp that nobody asks for changes nothing.", with_token(b"no token")),
        "verified",
    )
    yield (
        "timestamp/foreign-authority",
        case("A timestamp by an authority that nobody trusts is refused.", stamped, timestamp_roots=[foreign]),
        "refused signature",
    )
    yield (
        "timestamp/of-something-else",
        case("A timestamp of another signature is refused.", with_token(other), timestamp_roots=[trusted]),
        "refused signature",
    )
    yield (
        "timestamp/damaged",
        case(
            "A timestamp with a changed bit is refused.",
            with_token(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:]),
            timestamp_roots=[trusted],
        ),
        "refused signature",
    )
    yield (
        "timestamp/none",
        case("Where a timestamp is asked for, a certificate without one is refused.", raw, timestamp_roots=[trusted]),
        "refused signature",
    )
    moment = datetime(2026, 1, 10, tzinfo=UTC)

    def stolen(since: datetime) -> str:
        entry = revocations.Entry(
            kind="key", sha256=SIGNER.public.keyid, reason="stolen", at=moment, invalid_since=since
        )
        return _text(
            revocations.issue(SIGNER, [entry], previous=None, next_update=moment + timedelta(days=30), issued_at=moment)
        )

    late, early = stolen(datetime(2040, 1, 1, tzinfo=UTC)), stolen(datetime(2026, 1, 5, tzinfo=UTC))
    yield (
        "timestamp/key-stolen-later",
        case(
            "What a timestamp proves to be older than the theft of the key goes on counting.",
            stamped,
            timestamp_roots=[trusted],
            revocations=[late],
        ),
        "verified",
    )
    yield (
        "timestamp/key-stolen-before",
        case(
            "What a timestamp proves to be younger than the theft of the key counts no longer.",
            stamped,
            timestamp_roots=[trusted],
            revocations=[early],
        ),
        "refused revoked",
    )
    after = replace(future, signatures=(dated,)).to_bytes()
    yield (
        "timestamp/audited-after-it-was-signed",
        case(
            "An audit that is dated after the proven time of its signature is refused.",
            after,
            timestamp_roots=[trusted],
        ),
        "refused contradiction",
    )


def audited_again(limit: float) -> tuple[Report, dict[str, Any]]:
    """Return the honest audit under another limit."""
    from fairkit.results.policy import judge

    report, settings = honest()
    rule = Rule(metric=DPD, sensitive="sex", max=limit)
    results, verdict = judge([rule], report.findings, confidence=report.confidence)
    return report.with_policy(results, verdict, None), settings | {"policy": [rule.to_dict()]}


def revoked(
    report: Report, settings: Any, raw: bytes, about: bytes, model: str
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield cases about revocation lists."""
    statement = hashlib.sha256(dsse.Envelope.from_bytes(raw).payload).hexdigest()
    moment = datetime(2026, 1, 10, tzinfo=UTC)

    def listed(by: KeySigner, *entries: revocations.Entry, previous: bytes | None = None, days: int = 30) -> bytes:
        before = None if previous is None else revocations.read(previous, [by.public])
        return revocations.issue(
            by, entries, previous=before, next_update=moment + timedelta(days=days), issued_at=moment
        )

    def entry(kind: Any, sha256: str, **more: Any) -> revocations.Entry:
        return revocations.Entry(kind=kind, sha256=sha256, reason="the label was wrong", at=moment, **more)

    own = listed(SIGNER, entry("certificate", statement))
    yield (
        "revocation/certificate",
        case("A revoked certificate counts no longer.", raw, revocations=[_text(own)]),
        "refused revoked",
    )
    wrapped = json.dumps(json.loads(raw), indent=2).encode()
    yield (
        "revocation/wrapped-anew",
        case("A revoked certificate stays revoked in another wrapping.", wrapped, revocations=[_text(own)]),
        "refused revoked",
    )
    yield (
        "revocation/model",
        case(
            "A certificate about a revoked model counts no longer.",
            about,
            revocations=[_text(listed(SIGNER, entry("model", model)))],
        ),
        "refused revoked",
    )
    yield (
        "revocation/key",
        case(
            "What a revoked key signed counts no longer.",
            raw,
            revocations=[_text(listed(SIGNER, entry("key", SIGNER.public.keyid)))],
        ),
        "refused revoked",
    )
    since = entry("key", SIGNER.public.keyid, invalid_since=datetime(2026, 1, 5, tzinfo=UTC))
    yield (
        "revocation/key-since-without-proof",
        case(
            "A key that is invalid since a day: what it signed before needs a timestamp to count.",
            raw,
            revocations=[_text(listed(SIGNER, since))],
        ),
        "refused revoked",
    )
    yield (
        "revocation/another-certificate",
        case(
            "A list about something else changes nothing.",
            raw,
            revocations=[_text(listed(SIGNER, entry("model", "0" * 64)))],
        ),
        "verified",
    )
    theirs = listed(SECOND, entry("certificate", statement))
    yield (
        "revocation/by-another-signer",
        case("A trusted key cannot revoke what another key signed.", raw, SIGNER, SECOND, revocations=[_text(theirs)]),
        "verified",
    )
    yield (
        "revocation/by-a-revoker",
        case(
            "A revoker's list counts against every signature.",
            raw,
            revocations=[_text(theirs)],
            revokers=[SECOND.public.pem],
        ),
        "refused revoked",
    )
    yield (
        "revocation/by-a-stranger",
        case(
            "A list by a key that nobody trusts is refused.",
            raw,
            revocations=[_text(listed(STRANGER, entry("certificate", statement)))],
        ),
        "refused signature",
    )
    both = signed(report, settings, SIGNER, SECOND)
    fallen = listed(SIGNER, entry("certificate", hashlib.sha256(dsse.Envelope.from_bytes(both).payload).hexdigest()))
    yield (
        "revocation/one-of-two-signatures",
        case("Of two signatures only the issuer's own falls.", both, SIGNER, SECOND, revocations=[_text(fallen)]),
        "verified",
    )
    overdue = listed(SIGNER, entry("model", "0" * 64), days=5)
    yield (
        "revocation/overdue",
        case(
            "With a list that its issuer no longer stands by nothing can be decided.", raw, revocations=[_text(overdue)]
        ),
        "undecided",
    )
    second = listed(SIGNER, entry("model", "2" * 64), previous=own)
    yield (
        "revocation/older-after-newer",
        case("A list that is older than one that was seen is refused.", raw, revocations=[_text(second), _text(own)]),
        "refused signature",
    )
    twin = listed(SIGNER, entry("model", "3" * 64), previous=own)
    yield (
        "revocation/two-with-one-number",
        case(
            "Two lists with one number are refused: one of them hides something.",
            raw,
            revocations=[_text(second), _text(twin)],
        ),
        "refused signature",
    )
    read = revocations.read(second, [SIGNER.public])
    empty = revocations.issue(
        SIGNER, [], previous=replace(read, entries=()), next_update=moment + timedelta(days=30), issued_at=moment
    )
    yield (
        "revocation/taken-back",
        case(
            "A list that takes a revocation back, as a thief of the key would, is refused.",
            raw,
            revocations=[_text(second), _text(empty)],
        ),
        "refused signature",
    )
    good = json.loads(dsse.Envelope.from_bytes(own).payload)
    yield "revocation/sound-list", case("A sound list is read.", own, kind="revocations"), "verified"
    for name, edit, protects in (
        ("number-zero", {"sequence": 0}, "A list without a usable number is refused."),
        ("number-true", {"sequence": True}, "A list whose number is true is refused."),
        (
            "unknown-kind",
            {"revoked": [{"kind": "soul", "sha256": "1" * 64, "reason": "", "at": "2026-01-01T00:00:00Z"}]},
            "A list that revokes something unknown is refused, not read in part.",
        ),
        (
            "truncated-digest",
            {"revoked": [{"kind": "model", "sha256": "1" * 63, "reason": "", "at": "2026-01-01T00:00:00Z"}]},
            "A list with a truncated digest is refused.",
        ),
        ("no-time", {"nextUpdate": "soon"}, "A list without a time until which its issuer stands by it is refused."),
    ):
        body = good | {"predicate": good["predicate"] | edit}
        made = dsse.sign(canonical(body), PAYLOAD_TYPE, [SIGNER]).to_bytes()
        yield f"revocation/{name}", case(protects, made, kind="revocations"), "refused form"
    lent = dsse.sign(
        canonical(good | {"predicate": good["predicate"] | {"issuer": STRANGER.public.keyid}}), PAYLOAD_TYPE, [SIGNER]
    ).to_bytes()
    yield (
        "revocation/issuer-lies",
        case(
            "A list that is not signed by the key that it names as its issuer is refused.",
            lent,
            SIGNER,
            STRANGER,
            kind="revocations",
        ),
        "refused signature",
    )
    yield (
        "revocation/truncated",
        case("A list of which a part is missing is refused.", own[: len(own) // 2], kind="revocations"),
        "refused form",
    )


def of_every_kind() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield sound certificates of every task and auditor, and of an older version."""
    rng = np.random.default_rng(5)
    rows = 600
    base = {"g": np.array(["a", "b", "c"])[rng.integers(0, 3, rows)]}
    number = {**base, "y": rng.normal(size=rows).round(3), "p": rng.normal(size=rows).round(3)}
    classes = np.array(["x", "y", "z"])
    several = {**base, "y": classes[rng.integers(0, 3, rows)], "p": classes[rng.integers(0, 3, rows)]}
    weighted = {
        **base,
        "y": rng.integers(0, 2, rows),
        "p": rng.integers(0, 2, rows),
        "w": rng.random(rows).round(3) + 0.5,
    }
    gaps = {**base, "y": rng.integers(0, 2, rows), "p": rng.integers(0, 2, rows)}
    gaps["g"] = np.array([None if i % 20 == 0 else name for i, name in enumerate(gaps["g"])], dtype=object)
    many = {
        "g": np.array([f"g{i}" for i in range(6)])[rng.integers(0, 6, rows)],
        "y": rng.integers(0, 2, rows),
        "p": rng.integers(0, 2, rows),
    }
    shown: list[tuple[str, Any, dict[str, Any]]] = [
        ("regression", number, {"label": "y", "sensitive": ["g"], "predictions": {"prediction": "p"}}),
        ("multiclass", several, {"label": "y", "favorable": "x", "sensitive": ["g"], "predictions": {"class": "p"}}),
        (
            "weighted",
            weighted,
            {"label": "y", "favorable": 1, "sensitive": ["g"], "weights": "w", "predictions": {"decision": "p"}},
        ),
        ("missing-groups", gaps, {"label": "y", "favorable": 1, "sensitive": ["g"], "predictions": {"decision": "p"}}),
        ("many-groups", many, {"label": "y", "favorable": 1, "sensitive": ["g"], "predictions": {"decision": "p"}}),
        (
            "reference",
            gaps,
            {"label": "y", "favorable": 1, "sensitive": ["g"], "reference": ["g=a"], "predictions": {"decision": "p"}},
        ),
    ]
    for name, table, roles in shown:
        report, settings = audited(table, roles)
        yield (
            f"task/{name}",
            case(f"A sound certificate of an audit ({name}) is accepted: no false alarm.", signed(report, settings)),
            "verified",
        )
    for auditor in ("why", "consistency", "subgroups", "restricted-dro", "dif", "all-inputs"):
        report, told = _with(auditor)
        yield (
            f"auditor/{auditor}",
            case(f"A sound certificate with findings of the auditor {auditor} is accepted.", signed(report, told)),
            "verified",
        )
        if auditor == "why":

            def shift(one: Finding) -> Finding:
                return (
                    replace(one, value=one.value + 0.01, interval=shifted(0.01)(one.interval))
                    if one.metric == "base_rate_part"
                    else one
                )

            wrong = replace(report, findings=tuple(map(shift, report.findings)))
            yield (
                "contradiction/a-part-that-its-counts-do-not-give",
                case("A part of a gap that does not follow from its signed counts is refused.", signed(wrong, told)),
                "refused contradiction",
            )
    pems = {name: (GOLDEN / name).read_text("utf-8") for name in ("key.pub", "p256.pub")}
    for name, key in (("no-policy", "key.pub"), ("certificate-p256", "p256.pub"), ("table-certificate", "key.pub")):
        old = gzip.decompress((GOLDEN / f"{name}.json.gz").read_bytes())
        made = case("A certificate that an older version signed is still verified.", old)
        made["input"]["keys"] = [pems[key]]
        yield f"older/{name}", made, "verified"


def _with(auditor: str) -> tuple[Report, dict[str, Any]]:
    """Audit the golden model by one auditor."""
    held = json.loads(dsse.Envelope.from_bytes(gzip.decompress((GOLDEN / "certificate.json.gz").read_bytes())).payload)
    settings = SignedSettings.from_dict(held["predicate"]["settings"])
    with tempfile.TemporaryDirectory() as place:
        table = Path(place) / "table.csv"
        table.write_bytes(gzip.decompress((GOLDEN / "table.csv.gz").read_bytes()))
        data = settings.open_data(table)
        near = {"fair_metric": "euclidean", "columns": ("income", "debt_ratio")}
        changed = {"sensitive": ("employment",)}
        parameters = {
            "restricted-dro": near,
            "dif": near,
            "consistency": changed,
            "all-inputs": {"columns": ("employment",)},
        }.get(auditor)
        asked = {auditor: parameters} if parameters else {}
        plain = replace(settings, auditors=(auditor,), parameters=asked, policy=(), adjustment=None)
        report = plain.run(str(GOLDEN / "model.onnx"), data)
    return Report.from_dict(report.to_dict()), json.loads(json.dumps(plain.to_dict(), default=list))


def others() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield cases about statements of tables, locks, watches, and about logs."""
    digest = "a" * 64
    table = tables.sign_table("people.csv", digest, 100, ["g", "y"], [SIGNER], purpose="audit", signed_at=AT)
    yield (
        "table/sound",
        case("A signed statement about this table is accepted.", table, kind="table statement", data_sha256=digest),
        "verified",
    )
    yield (
        "table/another",
        case("A signed statement about another table is refused.", table, kind="table statement", data_sha256="b" * 64),
        "refused",
    )
    yield (
        "table/by-a-stranger",
        case(
            "A statement about a table by a key that nobody trusts is refused.",
            table,
            STRANGER,
            kind="table statement",
            data_sha256=digest,
        ),
        "refused signature",
    )
    _, settings = honest()
    lock = sign_lock("people.csv", digest, 100, settings, [SIGNER], purpose="audit", locked_at=AT)
    yield ("lock/sound", case("A policy lock by a trusted key is accepted.", lock, kind="policy lock"), "verified")
    yield (
        "lock/by-a-stranger",
        case("A policy lock by a key that nobody trusts is refused.", lock, STRANGER, kind="policy lock"),
        "refused signature",
    )
    first = sign_heartbeat("2026-01-01", ("m.onnx", digest), {"rows": 10}, None, [SIGNER], signed_at=AT)
    link = hashlib.sha256(first).hexdigest()
    second = sign_heartbeat("2026-01-02", ("m.onnx", digest), {"rows": 12}, link, [SIGNER], signed_at=AT)
    third = sign_heartbeat(
        "2026-01-03", ("m.onnx", digest), {"rows": 14}, hashlib.sha256(second).hexdigest(), [SIGNER], signed_at=AT
    )
    chain = b"\n".join([first, second, third]) + b"\n"
    yield "watch/sound", case("A chain of daily statements is accepted.", chain, kind="watch"), "verified"
    yield (
        "watch/a-day-cut-out",
        case("A chain of which a day was cut out is refused.", b"\n".join([first, third]) + b"\n", kind="watch"),
        "refused",
    )
    yield (
        "watch/by-a-stranger",
        case("Daily statements by a key that nobody trusts are refused.", chain, STRANGER, kind="watch"),
        "refused",
    )
    events = [{"seq": n + 1, "action": "add", "at": "2026-01-01T00:00:00Z", "model": f"m{n}"} for n in range(7)]
    from fairkit_registry.jsonio import fingerprint

    leaves = checkpoints.entries([fingerprint(one) for one in events])
    origin = "example.org/models"
    note, old = checkpoints.sign(origin, leaves, SIGNER), checkpoints.sign(origin, leaves[:3], SIGNER)
    yield (
        "log/checkpoint",
        case("A checkpoint by a trusted key is accepted.", note.encode(), kind="checkpoint", origin=origin),
        "verified",
    )
    yield (
        "log/checkpoint-flipped",
        case(
            "A checkpoint whose size was changed is refused.",
            note.replace("\n7\n", "\n6\n", 1).encode(),
            kind="checkpoint",
        ),
        "refused signature",
    )
    yield (
        "log/checkpoint-of-another-log",
        case("A checkpoint of another log is refused.", note.encode(), kind="checkpoint", origin="example.org/others"),
        "refused signature",
    )
    yield (
        "log/checkpoint-by-a-stranger",
        case("A checkpoint by a key that nobody trusts is refused.", note.encode(), STRANGER, kind="checkpoint"),
        "refused signature",
    )
    proof = logproofs.prove_event(events[4], leaves, note)
    yield (
        "log/inclusion",
        case("An event that is in the log is shown to be in it.", proof.encode(), kind="proof"),
        "verified",
    )
    yield (
        "log/inclusion-at-another-place",
        case(
            "An event at another place of the log is refused.",
            proof.replace("index 4", "index 3").encode(),
            kind="proof",
        ),
        "refused signature",
    )
    forged = logproofs.prove_event({**events[4], "model": "evil"}, leaves, note)
    yield (
        "log/inclusion-of-another-event",
        case("An event that is not in the log is refused.", forged.encode(), kind="proof"),
        "refused signature",
    )
    growth = logproofs.prove_growth(3, leaves, note)
    yield (
        "log/growth",
        case(
            "A log that only grew is shown to have only grown.", growth.encode(), kind="proof", old=_text(old.encode())
        ),
        "verified",
    )
    rewritten = checkpoints.sign(origin, [*reversed(leaves[:3])], SIGNER)
    yield (
        "log/growth-of-a-rewritten-log",
        case(
            "A log whose past was rewritten is refused.", growth.encode(), kind="proof", old=_text(rewritten.encode())
        ),
        "refused signature",
    )


def main() -> None:
    """Write the cases that are not there, and say which of them this verifier answers otherwise than they ask."""
    from itertools import chain

    for name, record, wanted in chain(certificates(), others()):
        path = folder() / f"{name}.json"
        if path.exists():
            continue
        told = answer({"kind": record["kind"], "input": record["input"]})
        state, _, more = wanted.partition(" ")
        fits = told["answer"] == state and more in ("", told.get("because"), told.get("verdict"))
        if not fits:
            print("NOT WRITTEN", name, wanted, told)
            continue
        expected = {key: value for key, value in told.items() if key != "message"}
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {name: record.get(name, expected) for name in ("protects", "kind", "expected", "input")}
        path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
