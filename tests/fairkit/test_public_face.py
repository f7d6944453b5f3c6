"""What people see of the package, and of what is installed beside it."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import pydoc
import shutil
import sys
from pathlib import Path

import pytest

import fairkit
import fairkit_registry
from fairkit import installed

FUNCTIONS = [name for name in fairkit.__all__ if inspect.isfunction(getattr(fairkit, name))]
CLASSES = [name for name in fairkit.__all__ if inspect.isclass(getattr(fairkit, name))]


def test_help_begins_with_a_page_that_names_what_there_is():
    page = pydoc.plain(pydoc.render_doc(fairkit)).partition("PACKAGE CONTENTS")[0]
    lines = page.splitlines()
    assert len(lines) < 65
    assert max(map(len, lines)) <= 125
    for name in {*FUNCTIONS, "Watch", "Rule", "Metric", "Auditor", "Mitigator", "datasets", "FairkitError"}:
        assert name in page, name
    assert lines.index(next(line for line in lines if "fairkit.audit(model, X, y" in line)) < 15


def _callables():
    for module in (fairkit, fairkit_registry):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isfunction(thing):
                yield f"{module.__name__}.{name}", thing
            elif inspect.isclass(thing) and not issubclass(thing, BaseException):
                for inner, member in inspect.getmembers(thing, inspect.isroutine):
                    ours = (getattr(member, "__module__", None) or "").startswith("fairkit")
                    if ours and not inner.startswith("_"):
                        yield f"{module.__name__}.{name}.{inner}", member


def test_every_public_function_is_typed_and_documented():
    checked = 0
    for name, function in _callables():
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, name
        for parameter in signature.parameters.values():
            if parameter.name not in ("self", "cls"):
                assert parameter.annotation is not inspect.Parameter.empty, f"{name}({parameter.name})"
        assert inspect.getdoc(function), name
        checked += 1
    assert checked > 100


@pytest.mark.long
def test_every_signature_completes():
    """As an editor, or a notebook, sees it: names are loaded on use, and completion knows them all the same."""
    jedi = pytest.importorskip("jedi", reason="jedi completes; it comes with notebooks")
    for name in FUNCTIONS:
        found = jedi.Script(f"import fairkit\nfairkit.{name}(").get_signatures()
        expected = list(inspect.signature(getattr(fairkit, name)).parameters)
        assert [[one.name for one in each.params] for each in found] == [expected], name
    names = {one.name for one in jedi.Script("import fairkit\nfairkit.").complete()}
    assert {*FUNCTIONS, *CLASSES} <= names
    told = {one.name for one in jedi.Script("import fairkit\nfairkit.audit(1).").complete()}
    assert {"find", "save", "to_frame", "plot", "verdict"} <= told
    (plot,) = jedi.Script("import fairkit\nfairkit.audit(1).plot(").get_signatures()
    assert [one.name for one in plot.params] == ["name", "sensitive"]


def test_an_estimators_class_has_its_parameters_in_its_signature():
    Fair = fairkit.mitigator("fairgbm")
    assert {"n_estimators", "constraint", "tolerance", "learner"} <= set(inspect.signature(Fair).parameters)
    assert "sensitive_features" in inspect.signature(Fair.fit).parameters


def test_a_dataset_is_a_line():
    import pandas as pd

    frame = pd.DataFrame({"y": [0, 1], "sex": ["f", "m"], "x": [1.0, 2.0]})
    data = fairkit.load_data(frame, label="y", favorable=1, sensitive="sex")
    assert repr(data) == "<Dataset data frame: label 'y', favorable 1, sensitive sex>"


@pytest.mark.parametrize("text", ["m:sex", "m@30", "m:age:25:60|region+job", "m"])
def test_a_rule_is_said_as_the_command_says_it(text):
    rule = fairkit.Rule(text, max=0.1)
    assert rule == fairkit.Rule.parse(f"{text}=0.1", "max")
    assert fairkit.Rule(**rule.to_dict()) == rule


@pytest.mark.parametrize("given", [("m:sex", "race"), (":sex",), ("m@many:sex",), ("m:sex|",)])
def test_a_rule_that_says_two_things_is_refused(given):
    with pytest.raises(fairkit.PolicyError, match="write METRIC:COLUMN"):
        fairkit.Rule(*given, max=0.1)


def test_the_stub_names_what_the_face_loads():
    """Type checkers read the stub, Python the table: both have the same names from the same modules."""
    stub = ast.parse(Path(fairkit.__file__).with_suffix(".pyi").read_text("utf-8"))
    named = {
        alias.asname: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert named == fairkit._PUBLIC


# Entry points are read once, and again where something is installed, replaced or removed.
def distribution(folder, name, entry):
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[fairkit]\n{entry} = {name}\n")
    return info


def names():
    return {entry.name for entry in installed.entry_points("fairkit")}


def test_they_are_those_of_importlib_metadata():
    for group in ("fairkit", "fairkit.commands", "fairkit.formats", "console_scripts", "pytest11"):
        theirs = importlib.metadata.entry_points(group=group)
        expected = sorted((each.name, each.value, each.dist.name, each.dist.version) for each in theirs)
        assert sorted(installed.entry_points(group)) == expected != []


def test_nothing_is_read_twice(monkeypatch):
    installed.entry_points("fairkit")
    monkeypatch.setattr(installed, "_text", lambda path: read_again())
    assert "group" in names()


def read_again():
    raise AssertionError("the distributions are read again")


def test_the_first_of_a_name_counts_and_comments_do_not(monkeypatch, tmp_path):
    for place, entry in (("a", "first"), ("b", "second")):
        info = distribution(tmp_path / place, "the.irs" if place == "b" else "the_irs", entry)
        text = (info / "entry_points.txt").read_text()
        (info / "entry_points.txt").write_text(f"[other]\nnot-ours = x\n\n{text}# no = entry\n")
    monkeypatch.setattr("sys.path", [str(tmp_path / "a"), str(tmp_path / "b"), *sys.path])
    entries = [each for each in installed.entry_points("fairkit") if each.distribution.startswith("the")]
    assert entries == [("first", "the_irs", "the_irs", "1.0")]


def test_an_archive_is_read_too(monkeypatch, tmp_path):
    distribution(tmp_path / "packed", "zipped", "inside")
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "packed")
    monkeypatch.syspath_prepend(archive)
    assert {"inside", "group"} <= names()


def test_what_is_installed_replaced_or_removed_is_seen(monkeypatch, tmp_path):
    assert not names() & {"first", "second"}
    monkeypatch.syspath_prepend(str(tmp_path))
    info = distribution(tmp_path, "theirs", "first")
    assert "first" in names()
    shutil.rmtree(info)
    assert "first" not in names()
    distribution(tmp_path, "theirs", "second")
    assert names() & {"first", "second"} == {"second"}


def test_the_working_folder_is_a_place_of_its_own(monkeypatch, tmp_path):
    for name in ("here", "there"):
        distribution(tmp_path / name, name, name)
    monkeypatch.setattr("sys.path", ["", *sys.path])
    monkeypatch.chdir(tmp_path / "here")
    assert names() & {"here", "there"} == {"here"}
    monkeypatch.chdir(tmp_path / "there")
    assert names() & {"here", "there"} == {"there"}
