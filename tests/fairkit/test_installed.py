"""Entry points are read once, and again where something is installed, replaced or removed."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys

from fairkit import installed


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
