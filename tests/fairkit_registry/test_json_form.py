"""The forms of reports, certificates and frontiers are checked as the library jsonschema checks them."""

from __future__ import annotations

import copy
import json
import random

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

import fairkit
from fairkit.results.report import report_schema
from fairkit.support.files import mistakes
from fairkit_registry.evidence import predicate
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_repair.frontiers.state import _FORM

VALUES = (None, True, False, 0, 1, -1, 2.0, 0.5, 1e400, 10**400, "", "a", "0" * 64, [], [1], [0.1, 0.2], {}, {"a": 1})
REPORT, STATEMENT = report_schema(), predicate.schema()
SETTINGS = SignedSettings(data={"label": "would_repay"}).to_dict()


def paths(value, place=()):
    yield place
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths(item, (*place, key))


def changed(record, rng):
    """Replace, drop or add something somewhere."""
    record = {"whole": copy.deepcopy(record)}
    *place, key = ("whole", *rng.choice(list(paths(record["whole"]))))
    inner = record
    for step in place:
        inner = inner[step]
    kind = rng.randrange(4)
    if kind == 0 and key != "whole":
        del inner[key]
    elif kind == 1 and isinstance(inner[key], dict):
        inner[key]["added"] = rng.choice(VALUES)
    elif kind == 1 and isinstance(inner[key], list) and inner[key]:
        inner[key].append(inner[key][0])
    else:
        inner[key] = rng.choice(VALUES)
    return record["whole"]


@pytest.fixture(scope="module")
def records():
    data = fairkit.datasets.loans(300, label="would_repay", favorable="yes", sensitive=["sex"], drop=[])
    columns = fairkit.PredictedColumns(decision="decision", favorable="approved")
    record = fairkit.audit(columns, data, policy=[fairkit.Rule("demographic_parity_difference:sex", max=0.1)]).to_dict()
    record["findings"] = [record["findings"][0], record["findings"][-1]]
    record = json.loads(json.dumps(record))
    body = record | {"settings": SETTINGS, "mitigation": None, "fairMetrics": [], "auditedAt": "2026-03-01T12:00:00Z"}
    body |= {"checksums": predicate.checksums(body)}
    subject = [{"name": "m", "digest": {"sha256": "0" * 64}}]
    statement = {"_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicateType": predicate.TYPE}
    measures = {"a": [0.5, None, "lower"], "b": [0.5, [0.1, 0.2], "none"]}
    point = {"plugin": "p", "parameters": {}, "status": "done", "error": "", "measures": measures, "sha256": "0" * 64}
    point |= {"seconds": 1.5, "family": ""}
    frontier = {"schema": _FORM["properties"]["schema"]["const"], "about": {}, "points": [point], "digest": "d"}
    return {"report": record, "statement": statement | {"predicate": body}, "frontier": frontier}


@pytest.mark.parametrize(
    ("name", "schema", "others"),
    [("report", REPORT, ()), ("statement", STATEMENT, (REPORT,)), ("frontier", _FORM, ())],
    ids=["report", "statement", "frontier"],
)
def test_mistakes_are_those_of_jsonschema_in_its_words(records, name, schema, others):
    known = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in others])
    theirs, rng, wrong = Draft202012Validator(schema, registry=known), random.Random(0), 0
    for number in range(150):
        record = changed(records[name], rng) if number else records[name]
        expected = [(tuple(each.absolute_path), each.message) for each in theirs.iter_errors(record)]
        assert list(mistakes(record, schema, *others)) == expected
        wrong += bool(expected)
    assert 30 < wrong < 140
