from __future__ import annotations

from fairkit_registry.evidence import declared


def test_the_table_is_what_the_plugins_declare():
    """`make docs` writes it; a plugin whose libraries are not here cannot be compared."""
    table, collected = declared._table(), declared.collected()
    assert table["metrics"] == collected["metrics"]
    assert {name: table["auditors"].get(name) for name in collected["auditors"]} == collected["auditors"]


def test_our_auditors_own_checks_are_reached():
    assert declared.checks("why").__module__ == "fairkit_why.checking"
    assert declared.checks("all-inputs").__module__ == "fairkit_all_inputs.checking"
    assert declared.checks("group") is None
    assert declared.owners()["subgroup_difference"] == "subgroups"
    assert "group" not in declared.owners().values()
    assert declared.headlines("why") >= {"attribution", "base_rate_part"}
    assert declared.default("group", "min_group") == 30
    assert declared.default("nobody", "x") is None
