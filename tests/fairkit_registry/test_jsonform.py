from __future__ import annotations

import copy
import json
import random
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from fairkit.results.schema import report_schema
from fairkit_registry.evidence import predicate
from fairkit_registry.evidence.dsse import Envelope
from fairkit_registry.jsonform import validator

GOLDEN = Path(__file__).parent / "golden"


def _places(value, path=()):
    yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from _places(inner, (*path, step))


def _changed(statement, rng, places):
    """Return a copy of which one value is gone, or another."""
    made = copy.deepcopy(statement)
    path = rng.choice(places)
    if not path:
        return []
    around = made
    for step in path[:-1]:
        around = around[step]
    other = [None, True, -1, 0.5, 2.0, "", "x", [], {}, [1], {"a": [{}]}, "a" * 64]
    if rng.random() < 0.3:
        del around[path[-1]]
    elif isinstance(around, dict) and rng.random() < 0.2:
        around[rng.choice(["unknown", "column", "value", "base"])] = rng.choice(other)
    else:
        around[path[-1]] = rng.choice(other)
    return made


@pytest.mark.long
@pytest.mark.parametrize("name", ["certificate", "table-certificate", "no-policy"])
def test_it_accepts_and_refuses_what_jsonschema_does(name):
    """Statements of which one value is another, against the reference implementation of JSON Schema in Python."""
    import gzip

    raw = gzip.decompress((GOLDEN / f"{name}.json.gz").read_bytes())
    statement = json.loads(Envelope.from_bytes(raw).payload)
    statement["predicate"]["findings"] = statement["predicate"]["findings"][:3]
    known = Registry().with_resource(report_schema()["$id"], Resource.from_contents(report_schema()))
    reference = Draft202012Validator(predicate.schema(), registry=known)
    check = validator(predicate.schema(), report_schema())
    assert check(statement) is None
    assert reference.is_valid(statement)
    rng, places = random.Random(4), list(_places(statement))
    refused = 0
    for _ in range(400):
        made = _changed(statement, rng, places)
        assert (check(made) is None) == reference.is_valid(made), made
        refused += check(made) is not None
    assert refused > 100


@pytest.mark.parametrize(
    ("schema", "value", "place", "message"),
    [
        ({"type": "object", "required": ["a"]}, {}, "", "'a' is a required property"),
        ({"properties": {"a": {"items": {"type": "integer"}}}}, {"a": [1, 2.5]}, "a/1", "2.5 is not of type"),
        ({"additionalProperties": False, "properties": {}}, {"b": 1}, "", "'b' is not one of its form"),
        ({"enum": [1, "x"]}, True, "", "True is not one of"),
        ({"oneOf": [{"type": "number"}, {"minimum": 0}]}, 1, "", "more than one"),
        ({"not": {"const": 1}}, 1, "", "excluded"),
    ],
)
def test_a_mistake_names_its_place(schema, value, place, message):
    found = validator(schema)(value)
    assert found.place == place
    assert message in found.message


def test_a_keyword_that_is_not_known_is_no_silence():
    with pytest.raises(ValueError, match="'uniqueItems', which is not known here"):
        validator({"uniqueItems": True})
