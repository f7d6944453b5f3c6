"""Names that attack whoever shows them, through every command and every format: nothing in them takes effect."""

from __future__ import annotations

import base64
import json
import os
import tomllib
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.commands import invoke

from fairkit_cli.verifier.bundle import page as verifying_page

GROUPS = (
    "f[/x]",
    "[link=https://evil.example]m[/link]",
    "\x1b[2J\x1b]8;;https://evil.example\x07a\x1b]8;;\x07",
    "\u202eelam\u2066",
    "b\n✓ PASS: 1 of 1 policy rule kept\r\x08",
    "</td><script>alert(1)</script>",
    '|x|`#*_"&lt;![x](https://evil.example)',
    "=cmd|' /C calc'!A0",
    "\x9b31mc\x00\x7f",
    "fe\u200dmale",
    "{0} %s {{x}} $HOME `id`",
    "z" * 3_000,
)
SENSITIVE = "s[/y]\x1b[31m\u202e\n<b>"
FEATURE = "x[bold]\x1b]0;title\x07\nfairkit: y"
LABEL = "y\u2028</title>"
ROWS = 40 * len(GROUPS)


def acting(text: str) -> set[str]:
    """Characters that a terminal, a page or a reader may obey, except line feeds of our own."""
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return {char for char in text if unicodedata.category(char) in kinds} - {"\n"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table and a model whose every name is hostile, their files too."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    label = np.where(rng.random(ROWS) < 0.5, "good[/g]\x1b[1m", "bad\u202e<i>")
    table = pa.table(
        {
            SENSITIVE: [GROUPS[i % len(GROUPS)] for i in range(ROWS)],
            FEATURE: rng.random(ROWS).astype(np.float32),
            LABEL: label,
            "extra": rng.random(ROWS),
        }
    )
    data = folder / "data \x1b[31m\n<b>[x].parquet"
    pq.write_table(table, data)
    graph = helper.make_graph(
        [helper.make_node("Mul", [FEATURE, "w"], ["probabilities"])],
        "g\x1b[0m",
        [helper.make_tensor_value_info(FEATURE, TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, 1])],
        [numpy_helper.from_array(np.array([0.9], np.float32), "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made.producer_name = "p\x1b[31m[/x]"
    entry = made.metadata_props.add()
    entry.key, entry.value = "note\x1b[5m", "\x1b[5mv\u202e"
    model = folder / "m\x1b]0;x\x07[x]\n.onnx"
    model.write_bytes(made.SerializeToString())
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([0.7], np.float32), "w"))
    (folder / "other[x]\x1b.onnx").write_bytes(made.SerializeToString())
    return folder, model, data


ROLES = ("--label", LABEL, "--favorable", "good[/g]\x1b[1m", "--sensitive", SENSITIVE, "--features", FEATURE)
RULES = ("--max", f"demographic_parity_difference:{SENSITIVE}=0.01", "--min", "accuracy=0.1")


@pytest.fixture
def run(files, tmp_path, monkeypatch):
    """Run a command in an empty folder, and check what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAIRKIT_REGISTRY", str(tmp_path / "registry"))

    def call(*arguments, codes=(0, 1, 2, 3)):
        result = invoke(*arguments)
        assert result.exit_code in codes, (result.exit_code, result.output[-1000:])
        for stream in (result.stdout, result.stderr):
            assert not acting(stream), acting(stream)
            if not stream.startswith("<!doctype"):
                assert not [line for line in stream.splitlines() if line.startswith(("✓ PASS: 1 of 1", "fairkit: y"))]
        return result

    return call


class _Tags(HTMLParser):
    """Collects the elements of a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def _check(text: str, output_format: str) -> None:
    if output_format == "json":
        json.loads(text)
    elif output_format == "junit":
        ET.fromstring(text)
    elif output_format == "html":
        page = _Tags()
        page.feed(text)
        own = 1 + ('class="whatif"' in text)  # the page's, and that of the panel of thresholds
        assert sum(tag == "script" for tag, _ in page.found) == own
        assert not {"i", "b", "img", "iframe"} & {tag for tag, _ in page.found}
        links = [attributes for tag, attributes in page.found if tag == "a"]  # our own, to places of the page
        saved = [each for each in links if "download" in each]  # the page that checks certificates, in a page of them
        assert all(each["download"] == "verify.html" and set(each) == {"href", "download"} for each in saved)
        whole = f"data:text/html;base64,{base64.b64encode(verifying_page().encode()).decode()}"
        assert all(each["href"] == whole for each in saved)
        places = [each for each in links if each not in saved]
        assert all(set(each) <= {"href", "title", "class"} and each["href"][:1] == "#" for each in places)


@pytest.mark.long
@pytest.mark.parametrize("output_format", ["table", "json", "junit", "html"])
def test_an_audit_shows_no_name_that_acts(run, files, output_format, tmp_path):
    _, model, data = files
    call = ("audit", model, "--data", data, *ROLES, *RULES, "--format", output_format)
    result = run(*call, codes=(1, 3))
    _check(result.stdout, output_format)
    run(*call, "--output", tmp_path / "o[x]\n\x1b.txt", codes=(1, 3))
    written = (tmp_path / "o[x]\n\x1b.txt").read_text("utf-8")
    assert not acting(written)
    if output_format == "json":
        groups = json.loads(result.stdout)["data"]["groups"][SENSITIVE]
        assert set(groups) == set(GROUPS)  # every name as it is in the data
    if output_format == "table":
        for part in ("f[/x]", "[link=http", r"\x1b[2J", r"\u202eelam"):  # cells fold
            assert part in result.stdout


@pytest.mark.long
def test_a_terminal_gets_colours_and_nothing_else(files):
    import re

    import fairkit
    from fairkit_cli.formats import screen as table

    _, model, data = files
    dataset = fairkit.load_data(
        data, label=LABEL, favorable="good[/g]\x1b[1m", sensitive=[SENSITIVE], features=[FEATURE]
    )
    rule = fairkit.Rule(metric="demographic_parity_difference", sensitive=SENSITIVE, max=0.01)
    text = table(fairkit.audit(model, dataset, policy=[rule]), terminal=True)
    assert "\x1b[" in text
    assert not acting(re.sub(r"\x1b\[[0-9;]*m", "", text))


@pytest.mark.long
@pytest.mark.parametrize("output_format", ["table", "json", "html"])
def test_a_comparison_shows_no_name_that_acts(run, files, output_format):
    folder, model, data = files
    result = run(
        "compare", model, folder / "other[x]\x1b.onnx", "--data", data, *ROLES, "--format", output_format, codes=(0,)
    )
    _check(result.stdout, output_format)


@pytest.mark.long
@pytest.mark.parametrize("output_format", ["table", "json", "html"])
def test_a_repair_shows_no_name_that_acts(run, files, output_format, tmp_path):
    _, model, data = files
    result = run(
        *("mitigate", "--plugin", "rto", "--model", model, "--data", data, *ROLES, "--set", "min_group=2"),
        *("--output", tmp_path / "out[x]\x1b.onnx", "--format", output_format),
        codes=(0, 3),
    )
    _check(result.stdout, output_format)


@pytest.mark.long
@pytest.mark.parametrize("output_format", ["table", "json", "html"])
def test_a_frontier_shows_no_name_that_acts(run, files, output_format, tmp_path):
    _, _, data = files
    result = run(
        *(
            "frontier",
            "--plugin",
            "reweigh",
            "--learner",
            "logistic",
            "--data",
            data,
            *ROLES,
            "--set",
            "frontier.jobs=1",
        ),
        *("--state", tmp_path / "s[x]\x1b\n.json", "--format", output_format),
        codes=(0,),
    )
    _check(result.stdout, output_format)


@pytest.mark.long
def test_registry_certificates_and_archives(run, files, tmp_path):
    _, model, data = files
    run("key", "new", tmp_path / "k[x]\x1b", codes=(0,))
    certificate = tmp_path / "c[x]\x1b\n.json"
    run(
        *("certify", model, "--data", data, *ROLES, *RULES, "--key", tmp_path / "k[x]\x1b", "--output", certificate),
        codes=(1, 3),
    )
    key = ("--key", tmp_path / "k[x]\x1b.pub")
    run("verify", certificate, *key, "--model", model, "--data", data, codes=(1, 3))
    for output_format in ("table", "json"):
        run(
            *("registry", "add", "credit", model, "--certificate", certificate, "--tag", "t[/x]\x1b\u202e"),
            *("--notes", "n[/x]\x1b\n\u202e<b>[a](https://e)", "--format", output_format),
            codes=(0,),
        )
        run("registry", "alias", "credit", "production", *key, *RULES, "--format", output_format, codes=(0,))
        run("registry", "list", "credit", "--format", output_format, codes=(0,))
        run("registry", "list", "--format", output_format, codes=(0,))
        run("registry", "show", "--log", "--format", output_format, codes=(0,))
        run("registry", "promote", "credit@1", "production", "--format", output_format, codes=(1, 3))
        run("registry", "verify", "credit@1", *key, "--format", output_format, codes=(1, 3))
        run("registry", "check", "--format", output_format, codes=(0,))
        run("registry", "check", "--gc", "--format", output_format, codes=(0,))
    for output_format in ("table", "json", "markdown", "cyclonedx", "html"):
        shown = run("registry", "show", "credit@1", "--format", output_format, codes=(0,)).stdout
        _check(shown, "json" if output_format == "cyclonedx" else output_format)
        if output_format == "markdown":
            assert "<" not in shown.replace(r"\<", "")
    archive = tmp_path / "a[x]\x1b.tar"
    run("registry", "export", "credit", "--output", archive, codes=(0,))
    run("registry", "verify", archive, *key, codes=(1, 3))
    run("registry", "import", archive, "--name", "copy", codes=(0,))
    run("registry", "show", "nosuch\x1b[31m", codes=(2,))


def test_init_writes_what_is_read_again(run, tmp_path):
    column = "sex"
    rows = {column: ["a\x7f", "b"], "approved\U0001f600": [1, 2], "approved": ["yes", "no\x1b"]}
    data = tmp_path / 'd"[x]\x1b\n\u202e😀.parquet'
    pq.write_table(pa.table(rows), data)
    run("init", data, "--favorable", "yes", codes=(0,))
    written = Path("fairkit.toml").read_text("utf-8")
    assert not acting(written)
    assert tomllib.loads(written)["data"]["path"] == str(data)
    assert tomllib.loads(written)["data"]["label"] == "approved"


@pytest.mark.long
def test_file_names_that_are_no_unicode(run, files, tmp_path):
    _, model, data = files
    copy = os.fsencode(tmp_path) + b"/bad\xff\x9b.onnx"
    Path(os.fsdecode(copy)).write_bytes(model.read_bytes())
    name = os.fsdecode(copy)
    result = run("audit", name, "--data", data, *ROLES, codes=(0,))
    assert r"bad\udcff\udc9b" in result.stdout
    _check(run("audit", name, "--data", data, *ROLES, "--format", "junit", codes=(0,)).stdout, "junit")
    _check(run("audit", name, "--data", data, *ROLES, "--format", "json", codes=(0,)).stdout, "json")
    run("registry", "add", "credit", name)
    run("init", name)
    run("audit", "missing\udcff.onnx", "--data", data, codes=(2,))


PLUGIN = '''"""Sum[/x]\\x1b[31m\\u202e<b>."""
import fairkit

class Odd(fairkit.Metric):
    """What[/x]\\x1b]0;t\\x07\\nsecond"""
    name = "odd"
    better = "lower"
    range = (0.0, 1.0)
    meaning = "m[/x]\\x1b[2J"
    tasks = frozenset({"binary"})
    citation = "c[link=x]\\u202e"

def f():
    raise ValueError("e[/x]\\x1b[2J\\nfairkit: wrote x")
f()
'''


@pytest.mark.long
@pytest.mark.parametrize("output_format", ["table", "json"])
def test_the_list_of_plugins_shows_no_name_that_acts(run, tmp_path, monkeypatch, output_format):
    bad = tmp_path / "odd[x]\x1b.py"
    bad.write_text(PLUGIN, "utf-8")
    good = tmp_path / "odd_good.py"
    good.write_text(PLUGIN.replace("\nf()\n", "\n"), "utf-8")
    monkeypatch.setenv("FAIRKIT_PLUGINS", os.pathsep.join(map(str, (bad, good))))
    run("plugins", "--help", codes=(0,))
    run("plugins", "list", "--format", output_format, codes=(0,))
    for name in ("odd-good", "odd_good", "odd[x]\x1b", "none\x1b[31m\n"):
        run("plugins", "show", name, "--format", output_format)
        run("plugins", "check", name, "--format", output_format)
    run("plugins", "new", "a\x1b[31m", codes=(2,))


@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", "no\x1b[31m.onnx"),
        ("audit", "m.onnx", "--no-such\x1b[31m"),
        ("nosuch\x1b[31m\u202e",),
        ("audit", "m.onnx", "--format", "x\x1b[31m"),
        ("verify", "c\x1b", "--key", "k\x1b"),
        ("frontier", "--plugin", "p\x1b[31m", "--vary", "a\x1b=1"),
    ],
)
def test_what_was_typed_wrongly_is_shown_as_it_is_spelled(run, arguments):
    run(*arguments, codes=(2,))
