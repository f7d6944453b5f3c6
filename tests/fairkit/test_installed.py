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


def test_nothing_is_read_twice(monkeypatch):
    installed.entry_points("fairkit")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: read_again())
    assert "group" in names()


def read_again():
    raise AssertionError("the distributions are read again")


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
