"""Exporters of others: asked for by name, held to what they promise; ours cannot be taken."""

from __future__ import annotations

import json

import pytest
from tests.commands import invoke

import fairkit
from fairkit import plugins
from fairkit.exporters import FORMATS
from fairkit_cli.options.audit import VersionFormat
from fairkit_registry.store.registry import Registry

PLUGIN = '''"""Exporters for tests."""
import json

import fairkit
from fairkit.exporters import Exporter


class Line(Exporter):
    """A line."""

    name = "NAME"

    def export(self, card):
        RETURN


@fairkit.hookimpl
def fairkit_exporters():
    return [Line]
'''
HONEST = """return json.dumps({"model": card.reference, "sha256": card.model_sha256, "tags": card.tags})"""


@pytest.fixture
def show(tmp_path, monkeypatch):
    """Run ``registry show`` with plugins: each a name of a format and what its `export` does."""
    from onnx import TensorProto, helper

    node = helper.make_node("Neg", ["x"], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 1]) for name in "xy"]
    model = tmp_path / "model.onnx"
    model.write_bytes(helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:])).SerializeToString())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Registry(tmp_path / "registry", create=True) as store:
        version = store.add("credit", model, tags=["new"])

    def run(form, **exporters):
        files = []
        for file, (name, body) in exporters.items():
            (tmp_path / f"{file}.py").write_text(PLUGIN.replace("NAME", name).replace("RETURN", body))
            files.append(str(tmp_path / f"{file}.py"))
        monkeypatch.setenv("FAIRKIT_PLUGINS", ":".join(files))
        command = ["registry", "show", "credit", "--format", form, "--registry", str(tmp_path / "registry")]
        return invoke(*command)

    run.version = version
    return run


def test_an_exporter_of_a_plugin_writes_a_version(show):
    shown = show("line", lines=("line", HONEST))
    assert shown.exit_code == 0, shown.stderr
    assert json.loads(shown.stdout) == {"model": "credit@1", "sha256": show.version.model, "tags": ["new"]}


def test_a_format_of_nobody_is_told_with_those_that_are(show):
    wrong = show("lines", lines=("line", HONEST))
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "there is no format 'lines'. Did you mean 'line'?" in wrong.stderr
    broken = show("lime", lines=("line", HONEST), worse=("WORSE", "return ("))
    assert broken.exit_code == 2
    assert "the plugin 'worse' does not load" in broken.stderr


@pytest.mark.parametrize("name", FORMATS)
def test_nobody_takes_a_format_of_ours(name, show):
    ours = show(name)
    with_theirs = show(name, mine=(name, "return 'mine'"))
    assert ours.exit_code == (2 if name == "html" else 0)  # there is no audit to show
    assert (ours.exit_code, ours.stdout) == (with_theirs.exit_code, with_theirs.stdout)
    with pytest.raises(fairkit.PluginError, match=f"fairkit writes '{name}' itself"):
        plugins.load("mine")


def test_a_plugin_that_is_called_as_ours_takes_nothing(show):
    ours = show("cyclonedx")
    taken = show("cyclonedx", cards=("line", "return 'mine'"))
    assert (taken.exit_code, taken.stdout) == (0, ours.stdout)
    other = show("line", cards=("line", "return 'mine'"))
    assert other.exit_code == 2
    assert "two plugins have the name 'cards'" in other.stderr


def test_a_name_that_two_plugins_have_is_nobody_s(show):
    twice = show("line", one=("line", HONEST), two=("line", HONEST))
    assert twice.exit_code == 2
    assert "two plugins write the format 'line': one and two" in twice.stderr


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return card.model_sha256.encode()", "gives bytes"),
        ("return None", "gives NoneType"),
        ("return ''", "or nothing"),
        ("return chr(0xD800)", "failed while writing credit@1 as line \\(UnicodeEncodeError"),
        ("raise KeyError('owner')", "failed while writing credit@1 as line \\(KeyError: 'owner'"),
        ("card.aliases = ()", "failed while writing credit@1 as line \\(FrozenInstanceError"),
    ],
)
def test_what_is_no_text_is_the_plugin_s_fault(body, said, show):
    import re

    wrong = show("line", lines=("line", body))
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert re.search(said, wrong.stderr), wrong.stderr


def test_the_formats_that_are_ours_are_said_once():
    """What no plugin may take is what the option lists."""
    told = VersionFormat.__metadata__[0].help
    listed = told.removeprefix("How the result is written: ").removesuffix(" or one that a plugin writes.")
    names = [part.partition(" (")[0] for part in listed.split(", ")]
    assert sorted(names) == sorted(FORMATS)
    written = {cls.name for cls in plugins.load("cards").exporters}
    assert written == set(FORMATS) - {"table", "json", "html"}
