"""A frozen dataclass of ours does what Python's does, and compiles no method before somebody uses it."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
import types
from dataclasses import FrozenInstanceError

import pytest

from fairkit.support import lazy_dataclass
from fairkit.support.lazy_dataclass import field, replace

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
