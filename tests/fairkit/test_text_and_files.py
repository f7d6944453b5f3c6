"""What every part stands on: text from outside, whole files, phases, lazy dataclasses."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import time
import tomllib
import types
import unicodedata
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairkit.support import files, lazy_dataclass
from fairkit.support.escaping import json_text, markdown, toml_text, visible
from fairkit.support.files import FileError, check_writable, replacing, write_atomic
from fairkit.support.lazy_dataclass import field, replace
from fairkit.support.timings import cpu_seconds, each, peak_memory, phase, running, timed

TEXT = st.text(st.characters(), max_size=30)  # with surrogates
WHOLE = st.text(max_size=30)
JOINERS = "\u200c\u200d"


def _acts(text: str) -> set[str]:
    """Characters of the kinds control, format, surrogate and separator of lines that none of ours is."""
    kinds = ("Cf", "Cc", "Cs", "Zl", "Zp")
    return {char for char in text if unicodedata.category(char) in kinds} - set(NUMBER_SIGNS + JOINERS + "\n")


NUMBER_SIGNS = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
"""Format characters that are seen: signs above numbers."""


@given(TEXT)
@example("\x1b]8;;http://e\x07x\x9b31m")
@example("fe\u200dmale\u202e")
def test_nothing_in_visible_text_acts(text):
    assert not _acts(visible(text))
    assert "\n" not in visible(text)
    assert visible(text, lines=True).count("\n") == text.count("\n")


def test_how_characters_are_spelled():
    assert visible("a\x1b[31m\x9b\u202eb\udcff\n\t") == r"a\x1b[31m\x9b\u202eb\udcff\n\t"
    assert visible("fe\u200dmale \U000e0041") == r"fe\u200dmale \U000e0041"
    plain = "naïve 日本 ❤️ می‌خواهم é [/x] <b>"
    assert visible(plain) == plain


@pytest.mark.long
@given(st.recursive(st.none() | st.integers() | WHOLE, lambda one: st.lists(one) | st.dictionaries(WHOLE, one)))
@example(["\udcff", "\x7f", "fe\u200dmale"])
def test_json_is_equal_when_it_is_read_again_and_holds_nothing_that_acts(value):
    text = json_text(value)
    assert json.loads(text) == value
    text.encode()
    assert not _acts(text)


@given(st.text(max_size=30))
@example('\x7f😀\\"\x00\u202e')
def test_toml_text_is_equal_when_it_is_read_again(text):
    assert tomllib.loads(f"x = {toml_text(text)}")["x"] == text


def test_half_a_surrogate_pair_is_no_toml():
    with pytest.raises(ValueError, match="no valid Unicode"):
        toml_text("\udcff")


def test_markdown_has_no_marks_and_one_line():
    assert markdown("# [x](http://e) www.e <b>&lt; a|b\n\x1b `c`") == (
        r"\# \[x\](http\://e) www\.e \<b\>\&lt; a\|b \\x1b \`c\`"
    )


# Files appear whole or not at all: errors, signals and kills leave the old one and nothing beside it.
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


# Phases add up to the whole, each without those inside it; nobody pays who does not ask.
@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when it is told to, with processor time at twice the speed."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr("fairkit.support.timings.cpu_seconds", lambda: 2.0 * now[0])

    def move(seconds):
        now[0] += seconds

    return move


def walls(taken):
    return {one["phase"]: one["wall_seconds"] for one in taken.to_dict()["phases"]}


def test_a_phase_is_counted_without_those_inside_it(clock):
    with timed() as taken:
        clock(1)
        with phase("search"):
            clock(2)
            with phase("score"):
                clock(4)
            clock(8)
        with phase("score"):
            clock(16)
    record = taken.to_dict()
    assert walls(taken) == {"other": 1.0, "search": 10.0, "score": 20.0}
    assert record["wall_seconds"] == 31.0
    assert record["cpu_seconds"] == 62.0
    assert record["peak_memory_mib"] is None or record["peak_memory_mib"] > 1


def test_an_error_ends_its_phase(clock):
    @phase("read")
    def fail():
        clock(1)
        raise ValueError("no")

    with timed() as taken:
        with pytest.raises(ValueError, match="no"):
            fail()
        clock(3)
    assert walls(taken) == {"other": 3.0, "read": 1.0}


def test_what_is_done_with_an_item_is_not_in_the_phase_that_made_it(clock):
    def rows():
        for _ in range(3):
            clock(1)
            yield 0
        clock(1)

    with timed() as taken:
        for _ in each("read", rows()):
            clock(10)
    assert walls(taken) == {"other": 30.0, "read": 4.0}


def test_a_function_can_be_a_phase_and_nothing_runs_without_timed(clock):
    @phase("train")
    def train():
        clock(5)
        return running()

    assert train() is None
    with timed() as taken:
        assert train() is taken
    assert running() is None
    assert walls(taken) == {"other": 0.0, "train": 5.0}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what others hold is told by Linux alone")
def test_children_that_run_are_counted_once():
    code = "x = bytearray(80 << 20)\nn = 0\nwhile n < 3_000_000: n += 1\nprint(len(x), flush=True)\ninput()"
    before, held = cpu_seconds(), peak_memory()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        running_child = cpu_seconds() - before
        assert peak_memory() - held > 60
        child.stdin.write("\n")
    ended = cpu_seconds() - before
    assert running_child > 0.05
    assert running_child - 0.02 <= ended < running_child + 0.5


# A frozen dataclass of ours does what Python's does, and compiles no method before somebody uses it.
OPTIONS = [
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "slots": True, "repr": False},
    {"slots": True},
]


def _make(dataclass, options):
    @dataclass(**options)
    class Base:
        """A base."""

        name: str
        sizes: list[int] = field(default_factory=list, compare=False, repr=False)

    @dataclass(**options)
    class Child(Base):
        """A class below it, with conditions and a method that it writes itself."""

        size: float = 2.0
        double: float = field(init=False, default=0.0)
        log: list[str] = field(init=False, default_factory=list, compare=False, repr=False)

        def __post_init__(self):
            object.__setattr__(self, "double", 2 * self.size)

        def __str__(self):
            return f"{self.name}!"

    for cls in (Base, Child):
        cls.__qualname__ = cls.__name__
    return Base, Child


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_does_what_dataclasses_do(options):
    ours, theirs = _make(lazy_dataclass.dataclass, options), _make(dataclasses.dataclass, options)
    for mine, other in zip(ours, theirs, strict=True):
        assert inspect.signature(mine) == inspect.signature(other)
        assert [each.name for each in dataclasses.fields(mine)] == [each.name for each in dataclasses.fields(other)]
        assert mine.__match_args__ == other.__match_args__
        first, twin, changed = mine(name="a"), mine(name="a", sizes=[1]), mine(name="b")
        assert first.sizes == []
        assert first.sizes is not mine(name="a").sizes
        like = other(name="a"), other(name="a", sizes=[1]), other(name="b")
        assert (first == twin, first == changed, first != like[0]) == (like[0] == like[1], like[0] == like[2], True)
        if options.get("repr", True):
            assert (repr(first), str(first)) == (repr(like[0]), str(like[0]))
        else:
            assert "object at" in repr(first)
        if not options.get("frozen"):
            assert mine.__hash__ is None
        elif options.get("eq", True):
            assert hash(first) == hash(twin) == hash(like[0])
        assert replace(first, name="c").name == "c"
        assert dataclasses.asdict(copy.deepcopy(twin)) == dataclasses.asdict(like[1])
    assert ours[1](name="a", size=4.0).double == 8.0


def test_what_is_frozen_cannot_be_changed():
    @lazy_dataclass.dataclass(frozen=True)
    class Held:
        size: int = 1

    for change in (lambda one: setattr(one, "size", 2), lambda one: delattr(one, "size")):
        with pytest.raises(FrozenInstanceError, match="field 'size'"):
            change(Held())
    with pytest.raises(FrozenInstanceError, match="'more'"):
        Held().more = 1
    with pytest.raises(TypeError, match="cannot inherit"):
        dataclasses.dataclass(type("Loose", (Held,), {}))


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Packed:
    """Can be pickled: its name is found in this module."""

    size: int
    names: tuple[str, ...] = ()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    ("args", "given"),
    [
        ((), {}),
        (("a", [1], 3.0, 4.0, 5.0), {}),
        (("a",), {"name": "b"}),
        ((), {"name": "a", "double": 1.0}),
        ((), {"name": "a", "nobody": 1}),
        ((), {"name": "a", "size": 3.0, "sizes": [1]}),
    ],
    ids=str,
)
def test_the_first_objects_are_made_as_the_later_ones(options, args, given):
    """Also where the arguments are wrong, in the same words."""

    def outcome(cls):
        try:
            return dataclasses.asdict(cls(*args, **given))
        except TypeError as error:
            return str(error).partition("__init__")[2]

    ours, theirs = (_make(way, options)[1] for way in (lazy_dataclass.dataclass, dataclasses.dataclass))
    first = outcome(ours)
    [ours(name=str(number)) for number in range(100)]
    assert first == outcome(ours) == outcome(theirs)


def test_it_goes_into_other_processes():
    assert pickle.loads(pickle.dumps(Packed(3, ("a",)))) == Packed(3, ("a",))


def test_class_variables_of_another_file_are_no_arguments(monkeypatch):
    elsewhere = types.ModuleType("elsewhere")
    monkeypatch.setitem(sys.modules, "elsewhere", elsewhere)
    code = "from typing import ClassVar\nfrom fairkit.support.lazy_dataclass import dataclass\n"
    code += "@dataclass(frozen=True)\nclass Base:\n    kind: ClassVar[str] = 'a'\n    size: int = 1\n"
    exec(code, vars(elsewhere))  # annotations are text there, as here

    @lazy_dataclass.dataclass(frozen=True)
    class Child(elsewhere.Base):
        more: int = 2

    assert repr(Child(3)).endswith("Child(size=3, more=2)")
    assert Child(3).kind == "a"


def test_nothing_is_compiled_before_it_is_used(monkeypatch):
    compiled = []
    original = dataclasses._create_fn if hasattr(dataclasses, "_create_fn") else None
    if original is None:
        pytest.skip("Python compiles the methods of a class at once")
    monkeypatch.setattr(
        dataclasses, "_create_fn", lambda name, *a, **k: compiled.append(name) or original(name, *a, **k)
    )

    @lazy_dataclass.dataclass(frozen=True, slots=True)
    class Light:
        size: int

    assert [Light(3).size, Light(size=4).size] == [3, 4]
    assert compiled == []
    assert repr(Light(3)).endswith("Light(size=3)")
    assert "__init__" not in compiled
    assert [Light(size).size for size in range(100)] == list(range(100))
    assert compiled.count("__init__") == compiled.count("__repr__") == 1
