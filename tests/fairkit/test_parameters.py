from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairkit.errors import ParameterError, RenamedWarning
from fairkit.parameters import describe_parameters, parameter, parameters_to_dict, parse_parameters, split_assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    rate: float = parameter(0.1, help="A rate.", above=0, maximum=1)
    rounds: int = parameter(100, help="How many.", minimum=1)
    fast: bool = parameter(False, help="Fast?")
    kind: Literal["last", "best"] = parameter("last", help="Which.")
    names: tuple[str, ...] = parameter(("a",), help="Names.")
    kinds: tuple[Literal["x", "y"], ...] = parameter(("x",), help="Kinds.")
    levels: list[float] | None = parameter(None, help="Levels.", minimum=0)
    limit: int | None = parameter(None, help="Limit.")
    epsilon: float | tuple[float, ...] = parameter(0.5, help="One or several.")
    pair: tuple[int, float] = parameter((1, 2.0), help="Pair.")
    inner: Mapping[str, Any] = parameter({}, help="Passed through.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    target: float = parameter(help="Must be given.")


def parse(**values: Any) -> Sample:
    return parse_parameters(Sample, values, owner="sample")


def test_defaults_stand_when_nothing_is_given():
    assert parse() == Sample()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rate", "0.25", 0.25),
        ("rate", 1, 1.0),
        ("rounds", "7", 7),
        ("rounds", 7.0, 7),
        ("fast", "true", True),
        ("fast", "no", False),
        ("fast", True, True),
        ("kind", "best", "best"),
        ("names", "a, b,c", ("a", "b", "c")),
        ("names", ["a", "b"], ("a", "b")),
        ("names", "one", ("one",)),
        ("kinds", "x,y", ("x", "y")),
        ("levels", "1,2", [1.0, 2.0]),
        ("levels", "none", None),
        ("limit", "3", 3),
        ("limit", None, None),
        ("epsilon", "0.1", 0.1),
        ("epsilon", "0.1,0.2", (0.1, 0.2)),
        ("epsilon", [0.1, 0.2], (0.1, 0.2)),
        ("pair", "3,4", (3, 4.0)),
        ("inner", {"max_bin": 63}, {"max_bin": 63}),
    ],
)
def test_text_and_typed_values(name, text, value):
    got = getattr(parse(**{name: text}), name)
    assert got == value
    assert type(got) is type(value)


def test_dotted_keys_fill_a_mapping_and_guess_types():
    values = {"inner.max_bin": "63", "inner.l1": "0.5", "inner.linear": "true", "inner.boosting": "dart"}
    assert parse_parameters(Sample, values, owner="sample").inner == {
        "max_bin": 63,
        "l1": 0.5,
        "linear": True,
        "boosting": "dart",
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rounds_": 3}, r"sample has no parameter 'rounds_'. Did you mean 'rounds'\?"),
        ({"rate": "fast"}, "sample: rate must be number, not 'fast'"),
        ({"rate": 0}, "rate must be above 0 and at most 1, not 0"),
        ({"rate": "nan"}, "rate must be number"),
        ({"rate": True}, "rate must be number"),
        ({"rounds": "0"}, "rounds must be at least 1, not 0"),
        ({"rounds": 1.5}, "rounds must be integer, not 1.5"),
        ({"rounds": True}, "rounds must be integer"),
        ({"fast": "maybe"}, "fast must be true or false"),
        ({"kind": "bes"}, r"kind cannot be 'bes'. Did you mean 'best'\?"),
        ({"kinds": "x,z"}, "kinds must be list of x | y"),
        ({"levels": "1,-1"}, "levels must be at least 0, not -1"),
        ({"names": 3}, "names must be list of text"),
        ({"pair": "1"}, "pair must be integer,number"),
        ({"rate.x": 3}, "sample.rate has no parts"),
        ({"inner": 3}, "inner must be KEY=VALUE pairs"),
    ],
)
def test_bad_values_are_named(values, message):
    with pytest.raises(ParameterError, match=message):
        parse_parameters(Sample, values, owner="sample")


def test_a_needed_parameter_must_be_given():
    with pytest.raises(ParameterError, match="needs target"):
        parse_parameters(Needs, {}, owner="needs")
    assert parse_parameters(Needs, {"target": "2"}, owner="needs").target == 2.0


def test_descriptions_have_ranges_and_defaults():
    rows = {row.name: row for row in describe_parameters(Sample)}
    assert rows["rate"] == ("rate", "number, above 0 and at most 1", "0.1", "A rate.")
    assert rows["kind"].type == "last | best"
    assert rows["limit"].type == "integer or none"
    assert rows["limit"].default == "none"
    assert rows["names"].default == "a"
    assert describe_parameters(Needs)[0].default is None


def test_an_assignment_is_split_at_its_first_sign():
    assert split_assignment("a=b=c") == ("a", "b=c")
    with pytest.raises(ParameterError, match="KEY=VALUE"):
        split_assignment("a")


@given(st.floats(min_value=1e-9, max_value=1), st.integers(1, 10**9), st.lists(st.sampled_from("xy"), min_size=1))
def test_round_trip_through_text(rate, rounds, kinds):
    first = parse(rate=rate, rounds=rounds, kinds=kinds)
    plain = parameters_to_dict(first)
    again = parse(rate=repr(plain["rate"]), rounds=str(plain["rounds"]), kinds=",".join(plain["kinds"]))
    assert again == first


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """A method whose parameters had other names and values before."""

    sensitive: str | None = parameter(None, help="The column.", former={"split": 1})
    tolerance: tuple[float, ...] = parameter((0.02,), help="The limit.", former={"epsilon": 2})
    constraint: tuple[str, ...] = parameter(
        (), help="What is equal.", former_values={"fnr": "equal_opportunity", "both": "equalized_odds"}
    )


@pytest.mark.parametrize(
    ("values", "field", "value"),
    [
        ({"split": "sex"}, "sensitive", "sex"),
        ({"epsilon": "0.01,0.05"}, "tolerance", (0.02, 0.1)),
        ({"epsilon": 0.25}, "tolerance", (0.5,)),
        ({"constraint": "fnr"}, "constraint", ("equal_opportunity",)),
        ({"constraint": "both, other"}, "constraint", ("equalized_odds", "other")),
        ({"constraint": ["fnr", "both"]}, "constraint", ("equal_opportunity", "equalized_odds")),
    ],
)
def test_former_names_and_values_work_and_say_so(values, field, value):
    with pytest.warns(RenamedWarning, match=field):
        found = parse_parameters(Renamed, values, owner="method")
    assert getattr(found, field) == value


def test_a_former_name_beside_the_name_of_today_is_refused():
    with pytest.raises(ParameterError, match="epsilon is the former name of tolerance"):
        parse_parameters(Renamed, {"epsilon": 0.1, "tolerance": 0.1}, owner="method")


def test_a_former_name_with_a_value_that_is_no_number_is_refused_under_the_name_of_today():
    with pytest.raises(ParameterError, match="tolerance"), pytest.warns(RenamedWarning):
        parse_parameters(Renamed, {"epsilon": "much"}, owner="method")


def test_todays_names_are_silent():
    parse_parameters(Renamed, {"sensitive": "sex", "tolerance": 0.1, "constraint": "other"}, owner="method")


def test_a_text_with_a_comma_stands_in_quotes():
    from fairkit.parameters import convert

    assert convert(tuple[str, ...], "a, b") == ("a", "b")
    assert convert(tuple[str, ...], 'job="x"') == ('job="x"',)
    assert convert(tuple[str, ...], '"job=clerk, senior",age=25:60') == ("job=clerk, senior", "age=25:60")
    assert convert(tuple[str, ...], "") == ()
