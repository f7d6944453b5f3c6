"""Files appear whole or not at all: errors, signals and kills leave the old one and nothing beside it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fairkit.support import files
from fairkit.support.files import FileError, check_writable, replacing, write_atomic


@pytest.fixture(params=["unnamed", "named"])
def folder(request, tmp_path, monkeypatch):
    """A folder on a system that can make files without names, and on one that cannot."""
    if request.param == "named":
        monkeypatch.setattr(files.os, "O_TMPFILE", 0, raising=False)
    return tmp_path


def test_a_file_is_replaced_whole_with_the_users_mask(folder):
    target = folder / "a b\nc.json"
    write_atomic(target, "old")
    write_atomic(target, b"new")
    assert target.read_bytes() == b"new"
    assert [p.name for p in folder.iterdir()] == [target.name]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask
    write_atomic(folder / "secret", b"k", mode=0o600)
    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600


def test_an_error_in_the_block_leaves_the_old_file_and_nothing_else(folder):
    target = folder / "out"
    write_atomic(target, "old")
    with pytest.raises(KeyboardInterrupt), replacing(target) as file:  # noqa: PT012 -- the block is the test
        file.write(b"half")
        raise KeyboardInterrupt
    assert target.read_text() == "old"
    assert [p.name for p in folder.iterdir()] == ["out"]


def test_an_existing_file_is_kept_where_it_may_not_be_replaced(folder):
    target = folder / "out"
    with pytest.raises(FileError, match="exists already"), replacing(target, replace=False) as file:  # noqa: PT012
        file.write(b"mine")
        target.write_text("theirs")  # somebody was faster
    assert target.read_text() == "theirs"
    with pytest.raises(FileError, match="exists already"):
        write_atomic(target, "mine", replace=False)
    assert [p.name for p in folder.iterdir()] == ["out"]


def test_a_device_is_written_to_and_stays_a_device(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check_writable(pipe)
    write_atomic(pipe, "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    write_atomic(Path(os.devnull), "text")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_full_device_is_one_message():
    with pytest.raises(FileError, match="disk or quota is full"):
        write_atomic(Path("/dev/full"), "text")


@pytest.mark.parametrize(
    ("name", "message"), [("no/where", "mkdir -p"), ("a\0b", "NUL|null"), ("x" * 300, "too long"), ("", "folder")]
)
def test_paths_that_cannot_be_written_are_named(tmp_path, name, message):
    with pytest.raises(FileError, match=message):  # noqa: PT012 -- either may find it
        check_writable(tmp_path / name)
        write_atomic(tmp_path / name, "x")
    assert list(tmp_path.iterdir()) == []


def test_half_a_surrogate_pair_is_one_message(tmp_path):
    with pytest.raises(FileError, match="no valid Unicode"):
        write_atomic(tmp_path / "x", "a\udcff")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without names exist on Linux only")
def test_a_killed_process_leaves_nothing(tmp_path):
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom fairkit.support.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as file:\n"
        "    file.write(b'x' * 100_000)\n    file.flush()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, tmp_path / "out"], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
