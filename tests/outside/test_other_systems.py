"""What Linux alone has is missed elsewhere; the fallback works and says so. Systems are simulated by what they lack."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import fairkit
from fairkit.support import files, timings
from fairkit_onnx.sandbox import confine
from fairkit_similarity.search import starting as memory
from fairkit_watch import log

ROLES = {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}


@pytest.fixture
def no_modules(monkeypatch):
    """As on Windows: neither `fcntl` nor `resource`."""
    for name in ("fcntl", "resource"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def no_proc(monkeypatch):
    """As everywhere but on Linux: no /proc, no files without a name."""
    true_open, true_is_dir = open, Path.is_dir

    def without(path, *args, **settings):
        if str(path).startswith("/proc"):
            raise FileNotFoundError(path)
        return true_open(path, *args, **settings)

    monkeypatch.setattr("builtins.open", without)
    monkeypatch.setattr("io.open", without)
    monkeypatch.setattr(Path, "is_dir", lambda self: not str(self).startswith("/proc") and true_is_dir(self))
    monkeypatch.setattr("tempfile._O_TMPFILE_WORKS", False)
    for name in ("O_TMPFILE", "memfd_create", "sched_getaffinity"):
        monkeypatch.delattr(os, name)


def audited(model, data):
    table = fairkit.load_data(data, **ROLES)
    return fairkit.audit(fairkit.OnnxModel.load(model), table)


def test_a_model_without_a_process_of_its_own_says_so(loans_model, monkeypatch):
    held = audited(loans_model.path, loans_model.data)
    monkeypatch.setattr("fairkit_onnx.sandbox.client.sys", SimpleNamespace(platform="win32"))
    plain = audited(loans_model.path, loans_model.data)
    assert [one.to_dict() for one in plain.findings] == [one.to_dict() for one in held.findings]
    assert "sandbox" not in plain.environment
    assert "a process of its own" in " ".join(held.environment["sandbox"])
    assert any("ran inside fairkit" in note for note in plain.model.notes)
    assert not any("ran inside fairkit" in note for note in held.model.notes)


@pytest.mark.usefixtures("no_proc")
def test_without_proc_the_sandbox_still_answers(loans_model):
    assert audited(loans_model.path, loans_model.data).find("accuracy").value > 0.6


@pytest.mark.usefixtures("no_modules")
def test_limits_that_the_system_lacks_are_not_claimed():
    assert confine.limit_memory(1 << 30) is None
    assert confine.limit_processor(5.0) is None
    confine.limit_dumps()
    assert timings.peak_memory() is None


@pytest.mark.parametrize("system", [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "riscv64")])
def test_calls_are_forbidden_where_the_numbers_are_known_only(system, monkeypatch):
    monkeypatch.setattr(confine, "sys", SimpleNamespace(platform=system[0]))
    monkeypatch.setattr(confine, "platform", SimpleNamespace(machine=lambda: system[1]))
    assert confine.forbid_calls() == ()


@pytest.mark.usefixtures("no_proc")
def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    flags = []
    true_open = os.open
    monkeypatch.setattr(os, "O_BINARY", os.O_CLOEXEC, raising=False)
    monkeypatch.setattr(
        os, "open", lambda path, how, *rest, **more: flags.append(how) or true_open(path, how, *rest, **more)
    )
    files.write_atomic(tmp_path / "a.txt", b"one\n")
    files.write_atomic(tmp_path / "a.txt", b"two\n")
    assert (tmp_path / "a.txt").read_bytes() == b"two\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert flags[0] & os.O_CLOEXEC  # no other line ends on Windows


@pytest.mark.usefixtures("no_modules")
def test_a_watch_has_one_writer_on_windows_too(tmp_path, monkeypatch):
    locked = []
    module = ModuleType("msvcrt")
    module.LK_NBLCK = 2
    module.locking = lambda descriptor, mode, size: locked.append((mode, size))
    monkeypatch.setitem(sys.modules, "msvcrt", module)
    with log.locked(tmp_path / "watch"):
        assert locked == [(2, 1)]


@pytest.mark.usefixtures("no_proc")
def test_free_memory_is_asked_of_the_system(monkeypatch):
    assert memory.available_bytes() > 1 << 20
    monkeypatch.delattr(os, "sysconf")
    assert memory.available_bytes() is None
