"""Addresses of queries on DuckDB files: how long they may be, and what opening one costs."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder

import pytest

import fairkit
from fairkit import installed

duckdb = pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "people.db"
    with duckdb.connect(str(path)) as connection:
        connection.sql("CREATE TABLE people AS SELECT 'f' AS sex, 1 AS hired UNION ALL SELECT 'm', 0")
    return path


def test_a_query_may_be_longer_than_a_name_of_a_file(file, monkeypatch):
    """The system refuses to look for a path whose name has more than 255 bytes; the text is an address all the same."""
    monkeypatch.chdir(file.parent)
    conditions = " OR ".join(f"sex = '{number}'" for number in range(100))
    data = fairkit.load_data(f"duckdb:{file.name}?query=FROM people WHERE sex = 'm' OR {conditions}", sensitive=[])
    assert data.source.types.keys() == {"sex", "hired"}


def test_an_address_has_the_installed_distributions_listed_once(file, monkeypatch):
    # a library that another test imported may have brought a finder of its own
    finders = [each for each in sys.meta_path if each is PathFinder or not hasattr(each, "find_distributions")]
    monkeypatch.setattr(sys, "meta_path", finders)
    installed._texts.cache_clear()
    installed._of.cache_clear()
    fairkit.load_data(f"duckdb:{file}?query=FROM people", sensitive=[])
    assert installed._texts.cache_info().misses == 1
