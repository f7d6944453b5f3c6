"""Tables whose rows repeat, in a database, and audits of them: of the rows, and of what the database counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import fairkit
from fairkit_sql.counted import SqlEngine

LABELLED: dict[str, Any] = {"label": "hired", "favorable": "yes"}


def people(rows: int = 4_000, seed: int = 0) -> pa.Table:
    """People with groups, some of them missing, weights, scores, ids and probabilities of groups."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m", None], rows, p=[0.45, 0.5, 0.05])
    skill = rng.normal(size=rows)
    score = np.round(1 / (1 + np.exp(-skill - (sex == "m") * 0.3)), 2)
    white = np.round(rng.random(rows), 1)
    columns = {
        "sex": pa.array(sex.tolist(), pa.string()),
        "race": pa.array(rng.choice(list("abcd"), rows).tolist()),
        "age": pa.array(rng.integers(18, 80, rows)),
        "office": pa.array(rng.choice(["x", "y", "NA"], rows, p=[0.5, 0.45, 0.05]).tolist()),
        "hired": pa.array(np.where(rng.random(rows) < 0.02, None, np.where(skill > 0, "yes", "no")).tolist()),
        "offered": pa.array(rng.random(rows) < score),
        "score": pa.array(score),
        "chance": pa.array(np.round(score**2, 1)),
        "level": pa.array(rng.choice(["low", "mid", "high"], rows).tolist()),
        "guess": pa.array(rng.choice(["low", "mid", "high"], rows).tolist()),
        "paid": pa.array(np.round(rng.normal(30, 4, rows))),
        "expected": pa.array(np.round(rng.normal(30, 4, rows))),
        "weight": pa.array(rng.choice([0.25, 1.0, 3.5], rows)),
        "team": pa.array(rng.integers(0, 300, rows)),
        "crew": pa.array([f"crew {number}" for number in rng.integers(0, 300, rows)]),
        "p_white": pa.array(white),
        "p_black": pa.array(1 - white),
        "fine": pa.array(rng.random(rows)),
    }
    return pa.table(columns)


def database(folder: Path, table: pa.Table, name: str = "people.db") -> str:
    """Write a table to a DuckDB file and return the address of its rows."""
    import duckdb

    path = folder / name
    with duckdb.connect(str(path)) as connection:
        connection.register("given", table)
        connection.sql("CREATE TABLE people AS SELECT * FROM given")
    return f"duckdb:{path}?query=SELECT * FROM people"


def both(data: Any, audit: dict[str, Any] | None = None, **roles: Any) -> tuple[Any, Any]:
    """Audit the rows, and what a database counts of them."""
    read = fairkit.audit(None, fairkit.load_data(data, **roles), **audit or {})
    engine = SqlEngine(pulls=False)
    return read, fairkit.audit(None, fairkit.load_data(data, **roles), engine=engine, **audit or {})


def flat(value: Any, where: str = "") -> dict[str, Any]:
    """Return every number and text of a JSON value by its place."""
    if isinstance(value, dict):
        return {k: v for key, one in value.items() for k, v in flat(one, f"{where}.{key}").items()}
    if isinstance(value, list | tuple):
        return {k: v for place, one in enumerate(value) for k, v in flat(one, f"{where}[{place}]").items()}
    return {where: value}


def assert_equal(read: Any, counted: Any, tolerance: float = 1e-9) -> None:
    """Compare all findings, with their evidence, groups, intervals and notes, and what is said of the data."""
    assert len(read.findings) == len(counted.findings) > 0
    for one, other in zip(read.findings, counted.findings, strict=True):
        mine, theirs = flat(one.to_dict()), flat(other.to_dict())
        assert mine.keys() == theirs.keys()
        for key, value in mine.items():
            if isinstance(value, float):
                assert abs(value - theirs[key]) <= tolerance * max(1.0, abs(value)), (one.metric, key)
            else:
                assert value == theirs[key], (one.metric, one.sensitive, key)
    mine, theirs = read.data, counted.data
    assert (mine.rows, mine.dropped_rows, mine.missing) == (theirs.rows, theirs.dropped_rows, theirs.missing)
    assert mine.groups == theirs.groups
    assert mine.clusters == theirs.clusters
