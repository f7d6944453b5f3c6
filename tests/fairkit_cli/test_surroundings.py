"""Where compiled kernels are kept: a folder that can be written, and that nobody else can write."""

from __future__ import annotations

import os
import platform
import stat
import subprocess
import sys

import pytest

from fairkit_cli import process_environment as surroundings


@pytest.fixture
def places(monkeypatch, tmp_path):
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(temporary))
    return home, temporary


def test_the_user_s_cache_comes_first(places):
    home, _ = places
    folder = surroundings.cache_folder()
    assert folder == home / "fairkit" / "numba"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_where_the_cache_cannot_be_written_it_is_a_folder_of_ours_alone(places):
    home, temporary = places
    (home / "fairkit").write_text("in the way")
    folder = surroundings.cache_folder()
    assert folder is not None
    assert folder.parent == temporary
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_folder_that_others_can_write_or_a_link_is_not_taken(places, tmp_path):
    home, temporary = places
    (home / "fairkit").write_text("in the way")
    planted = temporary / f"fairkit-numba-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    assert surroundings.cache_folder() is None
    planted.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    planted.symlink_to(elsewhere)
    assert surroundings.cache_folder() is None


def test_what_the_user_set_stays(places, monkeypatch):
    for name in ("OMP_WAIT_POLICY", "OPENBLAS_THREAD_TIMEOUT", "NUMBA_CACHE_DIR"):
        monkeypatch.setenv(name, "own")
    surroundings.prepare_libraries()
    assert {os.environ[name] for name in ("OMP_WAIT_POLICY", "NUMBA_CACHE_DIR")} == {"own"}
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    surroundings.prepare_libraries()
    assert os.environ["NUMBA_CACHE_DIR"].endswith("numba")
    monkeypatch.delenv("NUMBA_CACHE_DIR")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [({}, "1"), ({"OPENBLAS_NUM_THREADS": "4"}, "4"), ({"OMP_NUM_THREADS": "3"}, None)],
    ids=["nothing set", "its own", "everybody's"],
)
def test_openblas_has_one_thread_unless_the_user_says_otherwise(places, monkeypatch, given, wanted):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # so that it is restored afterwards
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    surroundings.prepare_libraries()
    assert os.environ.get("OPENBLAS_NUM_THREADS") == wanted


PAGES = """
import resource
from fairkit_cli.process_environment import prepare_libraries
prepare_libraries()
import numpy as np
def used():
    return [np.ones(2_500_000) for _ in range(2)]
used()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    used()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries keep memory in their own ways")
def test_memory_that_one_batch_needed_is_kept_for_the_next(tmp_path):
    """Twenty times forty megabytes: with glibc's own settings each page comes anew, and the user's settings stay."""

    def faults(**environment):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        kept |= {"XDG_CACHE_HOME": str(tmp_path), **environment}
        done = subprocess.run([sys.executable, "-c", PAGES], env=kept, capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert 10 * faults() < faults(MALLOC_TRIM_THRESHOLD_="1048576")
