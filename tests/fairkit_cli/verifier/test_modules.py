"""The page's JavaScript in node: its digests and its reading of JSON."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from fairkit_cli.verifier import bundle

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "cli" / "fairkit_cli" / "verifier"


def _node(node, code, **more):
    return subprocess.run(
        [node, "--input-type=module", "-e", code], cwd=SOURCE, check=True, capture_output=True, text=True, **more
    ).stdout


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
    ("text", "words"),
    [
        ('{"a":1,"a":2}', "a key stands twice"),
        ('{"a":{"b":1,"\\u0062":2}}', "a key stands twice"),
        ('{"a":NaN}', "it is no JSON"),
        ('{"a":1e999}', "a number that no computer"),
        ('{"a":' + "9" * 401 + "}", "a number that no computer"),
        ('{"a":01}', "no JSON"),
        ('{"a":"\x01"}', "no JSON"),
        ('{"a":"\\x"}', "no JSON"),
        ('{"a":1}x', "something follows"),
        ('{"a":[1,]}', "no JSON"),
        ("[1]", "no JSON object"),
        ('{"a":' + "[" * 100_000, "nested too deeply"),
        ("", "no JSON"),
    ],
)
def test_json_has_one_reading(node, text, words):
    script = (
        "import { readObject } from './json.mjs'; import { readFileSync } from 'node:fs';"
        "try { readObject(readFileSync(0)); console.log('read'); } catch (error) { console.log(error.constructor.name, error.message); }"
    )
    told = _node(node, script, input=text).strip()
    assert told.startswith("Refusal")
    assert words in told


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
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg|in-toto\.io|fairkit\.dev|json-schema\.org)", text)
