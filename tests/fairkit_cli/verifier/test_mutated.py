"""Hundreds of changed certificates through the page's modules and through Python: one answer."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import random
import subprocess
from pathlib import Path

import pytest
from tests.fairkit_cli.verifier.conftest import GOLDEN, golden

from fairkit_cli.verifier import bundle
from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence import certificate
from fairkit_registry.evidence import signed as dsse
from fairkit_registry.evidence.signers import load_public
from fairkit_registry.jsonio import canonical

HERE = Path(__file__).parent
OTHERS = (
    None,
    True,
    False,
    0,
    1,
    -1,
    0.5,
    1e-12,
    2**60,
    "",
    "x",
    "pass",
    "fail",
    "0" * 64,
    [],
    {},
    [0.1, 0.9],
    ["sex"],
    {"a": 1},
)


def locked(name: str = "certificate") -> dict[str, object]:
    """A statement that carries the golden policy lock, and fits it."""
    lock = gzip.decompress((GOLDEN / "lock.json.gz").read_bytes())
    said = json.loads(dsse.Envelope.from_bytes(lock).payload)
    statement = golden(name)
    body = statement["predicate"]
    said["subject"][0]["digest"]["sha256"] = body["data"]["sha256"]
    said["predicate"] |= {"settings": body["settings"], "lockedAt": body["auditedAt"]}
    envelope = json.loads(lock) | {"payload": base64.b64encode(canonical(said)).decode()}
    body["policyLock"] = envelope
    body["validUntil"] = "2999-01-01T00:00:00Z"
    return statement


def places(value: object, path: tuple = ()) -> list[tuple]:
    """The path of every value inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(*path, key) for key, _ in items] + [one for key, each in items for one in places(each, (*path, key))]


def mutated(statement: dict, draw: random.Random) -> dict:
    """Change one place of a statement, or two."""
    made = copy.deepcopy(statement)
    body = made["predicate"]
    body["findings"] = draw.sample(body["findings"], min(len(body["findings"]), 12)) + [
        one for one in body["findings"] if any(rule["metric"] == one["metric"] for rule in body["policy"])
    ]
    for _ in range(draw.choice((1, 1, 2))):
        path = draw.choice(places(made))
        if draw.random() < 0.4:  # where verdicts come from
            path = (
                "predicate",
                *draw.choice(
                    places(
                        {key: body[key] for key in ("policy", "findings", "verdict", "settings") if key in body} or body
                    )
                ),
            )
        parent = made
        try:
            for step in path[:-1]:
                parent = parent[step]
            was = parent[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue
        kind = draw.randrange(5)
        if kind == 0:
            del parent[path[-1]]
        elif kind == 1 and isinstance(was, int | float) and not isinstance(was, bool):
            parent[path[-1]] = draw.choice((was + 0.1, -was, was * 2, was + 1e-13, was * 1.5))
        elif kind == 2 and isinstance(parent, list):
            parent.append(copy.deepcopy(was))
        elif kind == 3 and isinstance(parent, dict):
            parent[
                draw.choice(("extra", "missing", "sequence", "adjustment", "within", "reference", "inconclusive"))
            ] = draw.choice(OTHERS)
        else:
            parent[path[-1]] = copy.deepcopy(draw.choice(OTHERS))
    return made


def enveloped(raw: bytes, draw: random.Random) -> bytes:
    """Change an envelope outside of what is signed, or break its signature."""
    record = json.loads(raw)
    kind = draw.randrange(8)
    if kind == 0:
        record["signatures"][0]["keyid"] = draw.choice(OTHERS)
    elif kind == 1:
        record["signatures"].insert(
            0, draw.choice(({"sig": "AAAA"}, {"sig": "x"}, {}, "x", {"sig": "AAAA", "keyid": None}))
        )
    elif kind == 2:
        record[draw.choice(("payload", "payloadType", "signatures"))] = draw.choice(OTHERS)
    elif kind == 3:
        record["signatures"][0]["timestamp"] = "AAAA"
    elif kind == 4:
        record = {"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "dsseEnvelope": record}
    else:
        place = draw.randrange(len(raw))
        return raw[:place] + bytes([raw[place] ^ 1 << draw.randrange(8)]) + raw[place + 1 :]
    return json.dumps(record).encode()


def python(raw: bytes, keys: list[Path], model: str | None, data: str | None) -> dict[str, object]:
    try:
        found = certificate.verify(raw, [load_public(one) for one in keys], model_sha256=model, data_sha256=data)
    except CertificateError as error:
        return {"answer": "refused", "because": str(error)}
    return {"answer": "verified", "verdict": found.report.verdict, "signers": sorted(found.keyids)}


def asked(signer, count: int, seed: int) -> list[tuple[bytes, str | None, str | None]]:
    draw = random.Random(seed)
    bases = [golden("certificate"), locked(), locked("table-certificate"), golden("no-policy")]
    cases = [(signer.sign(one), None, None) for one in bases]
    for number in range(count):
        base = bases[number % len(bases)]
        raw = signer.sign(mutated(base, draw), draw.choice(("ed25519", "p256")))
        raw = enveloped(raw, draw) if number % 5 == 0 else raw
        subject = base["subject"][0]["digest"]["sha256"]
        cases.append((raw, draw.choice((None, subject, "0" * 64)) if number % 7 == 0 else None, None))
    body = bases[0]["predicate"]
    for digest in (body["data"]["sha256"], "1" * 64):
        cases.append((signer.sign(bases[0]), None, digest))
    for text in (
        "2026-01-01T00:00:00Z",
        "2999-01-01T00:00:00+02:00",
        "2999-01-01",
        "2999-02-30T00:00:00Z",
        "20990101T000000Z",
        7,
    ):
        cases.append((signer.sign({**bases[0], "predicate": body | {"validUntil": text}}), None, None))
    for kind in ("application/json", ""):
        cases.append((signer.sign(bases[0], payload_type=kind), None, None))
    return cases


def differing(node, signer, tmp_path: Path, count: int, seed: int) -> tuple[list[object], list[dict[str, object]]]:
    (tmp_path / "tables.json").write_text(json.dumps(bundle.tables()))
    keys = [signer.pub, signer.p256]
    pems = [one.read_text() for one in keys]
    cases = asked(signer, count, seed)
    lines = [
        json.dumps({"file": base64.b64encode(raw).decode(), "keys": pems, "model": model, "data": data})
        for raw, model, data in cases
    ]
    told = subprocess.run(
        [node, str(HERE / "runner.mjs"), str(tmp_path / "tables.json")],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    page = [json.loads(one) for one in told]
    here = [python(raw, keys, model, data) for raw, model, data in cases]
    same = lambda one: {key: value for key, value in one.items() if key != "because"}  # noqa: E731
    return [(a, b, raw) for a, b, (raw, *_) in zip(page, here, cases, strict=True) if same(a) != same(b)], page


@pytest.mark.long
def test_the_page_and_python_give_one_answer(node, signer, tmp_path):
    apart, answers = differing(node, signer, tmp_path, 500, 20261127)
    assert apart == []
    assert sum(one["answer"] == "verified" for one in answers) > 50
    assert sum("contradicts itself" in one.get("because", "") for one in answers) > 50
