"""The page's JavaScript in node: its arithmetic against the audit's, its answers to the conformance suite."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.fairkit_cli.verifier.fuzzing import differences

from fairkit_cli.verifier import bundle
from fairkit_registry import conformance

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "cli" / "fairkit_cli" / "verifier"


def _node(node, code, **more):
    return subprocess.run(
        [node, "--input-type=module", "-e", code], cwd=SOURCE, check=True, capture_output=True, text=True, **more
    ).stdout


@pytest.mark.long
def test_the_second_arithmetic_finds_what_the_audit_finds(node):
    """benchmarks/second_arithmetic.py does the same on 100,000 tables."""
    for name, (apart, table) in differences(250, 43).items():
        assert apart < 1e-9, (name, table)


@pytest.mark.long
def test_the_page_s_modules_answer_the_conformance_suite(node):
    """Timestamps, locks, tables, watches and logs are no business of the page; it says so, and is wrong about nothing."""
    outcomes = list(conformance.run(shlex.join([node, str(HERE / "runner.mjs")]), conformance.cases()))
    assert [one.case.name for one in outcomes if one.mistake] == []
    supported = [one for one in outcomes if one.supported]
    assert len(supported) >= 133
    assert {one.case.kind for one in supported} == {"certificate", "revocations"}
    again = [one.answer for one in supported if one.answer.get("recomputed")]
    assert max(one["worst"] for one in again) < 1e-12
    honest = next(one.answer for one in outcomes if one.case.name == "envelope/ed25519")
    assert honest["recomputed"] == honest["findings"]


def test_the_digest_while_streaming_is_sha_256(node):
    sizes = [0, 1, 55, 56, 63, 64, 65, 119, 128, 1_000, 100_003]
    code = (
        "import { Sha256 } from './digest.mjs';"
        "for (const size of JSON.parse(process.argv[1])) { const d = new Sha256();"
        " for (let at = 0; at < size; at += 37) d.update(Uint8Array.from({ length: Math.min(37, size - at) }, (_, i) => (at + i) % 251));"
        " console.log(d.hex()); }"
    )
    told = subprocess.run(
        [node, "--input-type=module", "-e", code, json.dumps(sizes)],
        cwd=SOURCE,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert told == [hashlib.sha256(bytes(i % 251 for i in range(size))).hexdigest() for size in sizes]


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"a":1,"a":2}', "key-twice"),
        ('{"a":{"b":1,"\\u0062":2}}', "key-twice"),
        ('{"a":NaN}', "not-finite"),
        ('{"a":1e999}', "number-too-large"),
        ('{"a":' + "9" * 401 + "}", "number-too-large"),
        ('{"a":01}', "not-json"),
        ('{"a":"\x01"}', "not-json"),
        ('{"a":"\\x"}', "not-json"),
        ('{"a":1}x', "not-json"),
        ('{"a":[1,]}', "not-json"),
        ("[1]", "not-an-object"),
        ('{"a":' + "[" * 100_000, "too-deep"),
        ("", "not-json"),
    ],
)
def test_json_has_one_reading(node, text, code):
    script = (
        "import { readObject } from './json.mjs'; import { readFileSync } from 'node:fs';"
        "try { readObject(readFileSync(0)); console.log('read'); } catch (error) { console.log(error.constructor.name, error.message); }"
    )
    assert _node(node, script, input=text).strip() == f"FormError {code}"


def test_json_is_read_as_python_reads_it(node):
    value = {"ä": ["\u2028", 'a"b\\c', -0.5e-7, 12345678, True, None, {}], "__proto__": {"x": 1}, "constructor": []}
    script = "import { readObject } from './json.mjs'; import { readFileSync } from 'node:fs'; console.log(JSON.stringify(readObject(readFileSync(0))));"
    assert json.loads(_node(node, script, input=json.dumps(value))) == value


def test_the_page_is_small_and_readable():
    text = bundle.page()
    assert len(text.encode()) < 400_000
    shown = set(text.splitlines())
    for name in bundle.MODULES:  # every line of a module is in the page as it stands
        body = (SOURCE / f"{name}.mjs").read_text("utf-8")
        assert {line for line in body.splitlines() if not line.startswith(("import", "export"))} <= shown
    assert "innerHTML" not in text
    assert not re.search(
        r"https?://(?!www\.w3\.org/2000/svg|in-toto\.io|fairkit\.dev|json-schema\.org|model_signing)", text
    )


def test_every_code_has_a_sentence():
    """Nothing that the modules can find is without words."""
    source = {name: (SOURCE / f"{name}.mjs").read_text("utf-8") for name in bundle.MODULES}
    sentences = source["sentences"]
    for code in re.findall(r'new (?:FormError|SignatureError)\("([a-z0-9-]+)"\)', "".join(source.values())):
        assert re.search(rf'["\s]{code}"?:', sentences), code
    for code in re.findall(r'this\.say\("([a-z-]+)"', source["statement"]):
        assert re.search(rf'["\s]{code}"?: "', sentences), code
    for code in re.findall(r'left\.set\(finding, "([a-z-]+)"\)|return "([a-z-]+)";', source["statement"]):
        word = next(filter(None, code))
        assert word in ("fail", "pass", "inconclusive") or re.search(rf'["\s]{word}"?: "', sentences), word
