"""Totals by SQL on a PostgreSQL server: those of the rows, in one transaction, with names that are no SQL."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.commands import checked, invoke

import fairkit
from fairkit_sql.counted import SqlEngine

pytest.importorskip("ibis", reason="needs the extra fairkit[sql]")

HOSTILE = '"; DROP TABLE loans; --\' ""'


def both(address, **roles):
    read = fairkit.audit(None, fairkit.load_data(address, **roles))
    return read, fairkit.audit(None, fairkit.load_data(address, **roles), engine=SqlEngine(pulls=False))


def values(report):
    return [(one.metric, one.sensitive, one.within, one.value, one.interval) for one in report.findings]


def test_the_counts_of_a_server_are_those_of_its_rows(postgres, loans):
    count = loans.num_rows
    table = loans.append_column("id", pa.array([f"person {row % 700}" for row in range(count)]))
    table = table.append_column(HOSTILE, pa.array([("x", "y", None)[row % 3] for row in range(count)]))
    table = table.append_column("said", pa.array([row % 5 < 2 for row in range(count)]))
    postgres.fill("counted", table)
    address = postgres.address("SELECT *, age::numeric(9,2) AS exact FROM counted")
    roles = {"label": "decision", "favorable": "approved", "predictions": {"decision": "said"}}
    read, counted = both(address, **roles, sensitive=["sex", HOSTILE, "exact"], within=["said"])
    assert values(read) == values(counted)
    assert counted.data.source["snapshot"]
    assert counted.data.groups == read.data.groups
    clustered = both(address, **roles, sensitive=["sex"], cluster="id")
    assert [one.value for one in clustered[0].findings] == [one.value for one in clustered[1].findings]
    postgres.run("SELECT 1 FROM loans LIMIT 1")  # it is still there


def test_a_certificate_names_the_counts_and_is_counted_again(postgres, loans, tmp_path):
    postgres.fill("signed", loans.append_column("said", pa.array([row % 5 < 2 for row in range(loans.num_rows)])))
    address = postgres.address("SELECT * FROM signed")
    invoke("key", "new", tmp_path / "a.key", "--no-passphrase")
    output = tmp_path / "c.json"
    roles = ["--label", "decision", "--favorable", "approved", "--sensitive", "sex", "--predictions", "decision=said"]
    signing = ["--key", tmp_path / "a.key", "--insecure-key", "--output", output]
    checked("certify", "--data", address, *roles, "--set", "engine.name=sql", "--set", "engine.no_pull=true", *signing)
    verified = ["verify", output, "--key", tmp_path / "a.key.pub", "--data", address, "--recompute"]
    again = checked(*verified)
    assert "the database counts again" in again.output
    postgres.run("UPDATE signed SET said = NOT said WHERE ctid = (SELECT min(ctid) FROM signed)")
    changed = checked(*verified, code=1)
    assert "about other data" in changed.output
