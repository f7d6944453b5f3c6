from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from fairkit_registry.errors import RegistryError
from fairkit_registry.store.folder import INDEX_FILE
from fairkit_registry.store.index import AliasPolicy, Index
from fairkit_registry.store.registry import Registry, check

PROCESSES, EACH = 8, 50

ADDER = """
    import sys
    from fairkit_registry import Registry
    place, model, count = sys.argv[1:]
    with Registry(place, create=True) as store:
        for _ in range(int(count)):
            print(store.add("credit", model).version, flush=True)
"""

READER = """
    import os, sys
    from fairkit_registry.store.registry import resolve
    from fairkit_registry import Registry
    place, stop = sys.argv[1:]
    rounds = 0
    highest = 0
    while not os.path.exists(stop):
        with Registry(place) as store:
            found = [version.version for version in store.versions("credit")]
            assert found == list(range(len(found), 0, -1)), found
            assert len(found) >= highest
            highest = len(found)
            assert store.log(limit=1)[0].seq >= highest
            store.models()
        resolve("credit", place)
        rounds += 1
    print(rounds)
"""


STARTED: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def nothing_goes_on():
    """Processes of a test that failed end with it: some run until they are told to stop."""
    yield
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


def start(program: str, *arguments, **options) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    STARTED.append(process)
    return process


def finish(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-1500:]
    return out


@pytest.mark.long
def test_eight_processes_add_fifty_versions_each(tmp_path, model):
    place, stop = tmp_path / "registry", tmp_path / "stop"
    with Registry(place, create=True) as store:
        store.add("credit", model())
    reader = start(READER, place, stop)
    file = model()  # written once: the others read it already
    adders = [start(ADDER, place, file, EACH) for _ in range(PROCESSES)]
    told = [int(line) for adder in adders for line in finish(adder).split()]
    stop.touch()
    assert int(finish(reader)) > 3
    assert sorted(told) == list(range(2, PROCESSES * EACH + 2))
    with Registry(place) as store:
        assert [v.version for v in store.versions("credit")] == list(range(PROCESSES * EACH + 1, 0, -1))
        assert check(store).problems == ()


COLLECTOR = """
    import os, sys
    from fairkit_registry.store.registry import gc
    from fairkit_registry import Registry
    place, stop = sys.argv[1:]
    rounds = 0
    while not os.path.exists(stop):
        with Registry(place) as store:
            gc(store)
        rounds += 1
    print(rounds)
"""

UNIQUE = """
    import sys
    from pathlib import Path
    from fairkit_registry import Registry
    place, model, count, mark = sys.argv[1:]
    content = Path(model).read_bytes()
    mine = Path(model + mark)
    with Registry(place) as store:
        for number in range(int(count)):
            note = f"{mark}-{number % 20}".encode()
            mine.write_bytes(content + bytes([0x1A, len(note)]) + note)
            store.blobs.path(store.add("credit", mine).model).read_bytes()
"""


@pytest.mark.long
def test_collecting_garbage_never_takes_a_file_that_is_being_added(tmp_path, model):
    place, stop = tmp_path / "registry", tmp_path / "stop"
    with Registry(place, create=True) as store:
        store.add("credit", model())
    collector = start(COLLECTOR, place, stop)
    file = model()
    adders = [start(UNIQUE, place, file, 40, mark) for mark in "abc"]
    for adder in adders:
        finish(adder)
    stop.touch()
    assert int(finish(collector)) > 3
    with Registry(place) as store:
        assert check(store).problems == ()
        assert store.version("credit").version == 121


@pytest.mark.long
def test_processes_that_make_the_registry_at_once(tmp_path, model):
    file = model()
    adders = [start(ADDER, tmp_path / "registry", file, 2) for _ in range(6)]
    told = sorted(int(line) for adder in adders for line in finish(adder).split())
    assert told == list(range(1, 13))


def test_a_locked_database_is_a_clear_message(registry, model):
    registry.add("credit", model())
    blocker = sqlite3.connect(registry.path / INDEX_FILE, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        with Registry(registry.path, timeout=0.1) as store:
            started = time.perf_counter()
            with pytest.raises(RegistryError, match="locked by another program"):
                store.add("credit", model(2))
            assert time.perf_counter() - started < 5
            assert store.version("credit").version == 1  # readers are not held up
            assert list(store.blobs.temporary.iterdir()) == []
    finally:
        blocker.execute("ROLLBACK")
        blocker.close()
    assert registry.add("credit", model(2)).version == 2


def test_a_full_disk_is_a_clear_message_and_changes_nothing(tmp_path, make):
    """Files may not grow beyond 300 kB: an archive of a larger model, and then the index itself, cannot be written."""
    make.model(tmp_path / "small.onnx", 1)
    make.model(tmp_path / "large.onnx", 2, width=200_000)
    program = """
        import resource, sys
        from pathlib import Path
        from fairkit.support.files import FileError
        from fairkit_registry.errors import RegistryError
        from fairkit_registry.exchange.layout import export
        from fairkit_registry.store.registry import check
        from fairkit_registry import Registry
        folder = Path(sys.argv[1])
        with Registry(folder / "registry", create=True) as store:
            store.add("credit", folder / "small.onnx")
            store.add("big", folder / "large.onnx")
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
            try:
                store.add("credit", folder / "large.onnx")
            except RegistryError as error:
                print(error)
            try:
                export(store, ["big"], folder / "out.tar")
            except FileError as error:
                print(error)
            try:
                for _ in range(3000):
                    store.add("credit", folder / "small.onnx")
            except RegistryError as error:
                print(error)
            number = store.version("credit").version
        with Registry(folder / "registry") as store:
            assert store.version("credit").version == number
            assert check(store).problems == (), check(store).problems
            assert list(store.blobs.temporary.iterdir()) == []
    """
    lines = finish(start(program, tmp_path)).strip().splitlines()
    assert len(lines) == 3
    assert all("full" in line for line in lines), lines
    assert sorted(path.name for path in tmp_path.iterdir()) == ["large.onnx", "registry", "small.onnx"]


def test_a_full_file_system(tmp_path, make):
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small tmpfs is not permitted here")
    try:
        with Registry(place / "registry", create=True) as store:
            first = store.add("credit", make.model(tmp_path / "1.onnx", 1))
            with pytest.raises(RegistryError, match="full"):
                store.add("credit", make.model(tmp_path / "2.onnx", 2, width=200_000))
            with pytest.raises(RegistryError, match="full"):  # noqa: PT012 -- some round is the last one
                for factor in range(3, 2000):
                    store.add("credit", make.model(tmp_path / "n.onnx", factor, width=900))
            newest = store.version("credit")
            assert newest.version > 3
            assert store.version("credit@1") == first
        with Registry(place / "registry") as store:
            assert store.version("credit") == newest
            assert check(store).problems == ()
    finally:
        subprocess.run(["umount", place], check=True)


READ_ONLY = """
    import os, sys, tempfile
    from pathlib import Path
    from cryptography.hazmat.primitives.asymmetric import ed25519, ec
    from fairkit.errors import FairkitError
    from fairkit_registry.exchange import layout as archive
    from fairkit import plugins
    from fairkit_registry.promotion import run as promotion
    from fairkit_registry.evidence import certificate
    from fairkit_registry.store import index, registry
    from fairkit_registry import Registry
    plugins.third_party()  # imports what another user may not be able to read
    if os.getuid() == 0:
        os.setuid(65534)  # root may write anywhere
    place, model = sys.argv[1:]
    with Registry(place) as store:
        assert [v.reference for v in store.versions("credit")] == ["credit@1"]
        assert registry.check(store).problems == ()
        assert registry.resolve("credit", place).is_file()
        for change in (
            lambda: store.add("credit", model),
            lambda: promotion.promote(store, "credit@1", "open"),
            lambda: archive.export(store, ["credit"], Path(place) / "out.tar"),
        ):
            try:
                change()
            except FairkitError as error:
                print(error)
    try:
        Registry(Path(place) / "new", create=True)
    except FairkitError as error:
        print(error)
"""


@pytest.mark.long
@pytest.mark.parametrize("closed_well", [True, False], ids=["closed", "after a crash"])
def test_a_read_only_folder_is_read_and_says_what_is_wrong(make, closed_well):
    with tempfile.TemporaryDirectory(prefix="fairkit-ro-") as folder:  # pytest's own folders admit root only
        Path(folder).chmod(0o755)
        place = Path(folder) / "registry"
        model = make.model(Path(folder) / "m.onnx", 1)
        if closed_well:
            with Registry(place, create=True) as store:
                store.add("credit", model)
                store.set_alias("credit", "open", AliasPolicy(open=True))
        else:
            crash = f"""
                import os
                from fairkit_registry import Registry
                from fairkit_registry.store.index import AliasPolicy
                store = Registry({str(place)!r}, create=True)
                store.add("credit", {str(model)!r})
                store.set_alias("credit", "open", AliasPolicy(open=True))
                os._exit(0)
            """
            finish(start(crash))
        for path in [place, *place.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            process = start(READ_ONLY, place, model, cwd="/")
            lines = finish(process).strip().splitlines()
        finally:
            for path in [place, *place.rglob("*")]:
                path.chmod(0o755 if path.is_dir() else 0o644)
    assert len(lines) == 4
    assert all("cannot be written" in line or "check" in line for line in lines), lines


def test_a_registry_that_may_not_be_read(tmp_path):
    (tmp_path / INDEX_FILE).mkdir()
    with pytest.raises(RegistryError, match="there is no registry"):
        Registry(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [INDEX_FILE]


def test_a_reader_without_permission_to_write_notices_a_writer(registry, model, monkeypatch):
    """Such a reader may have to take the index as unchanging; it must not return what was torn."""
    registry.add("credit", model())
    registry.folder.index.close()
    import os

    monkeypatch.setattr(os, "access", lambda *arguments: False)
    connect = Index._connect

    def refuse(uri, timeout):  # as SQLite does where it may not make the files that it needs
        if uri.endswith("?mode=ro"):
            raise sqlite3.OperationalError("unable to open database file")
        return connect(uri, timeout)

    monkeypatch.setattr(Index, "_connect", staticmethod(refuse))
    with Registry(registry.path) as frozen:
        assert frozen.version("credit").version == 1
        monkeypatch.undo()
        with Registry(registry.path) as writer:
            writer.add("credit", model(2))
            with pytest.raises(RegistryError, match="written to while it was read"):
                frozen.version("credit")
