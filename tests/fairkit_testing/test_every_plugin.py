"""Every plugin that ships with fairkit keeps the contract of all plugins, and is shown whole."""

from __future__ import annotations

import pytest

from fairkit import plugins
from fairkit_testing import run_checks

QUICK = (
    "abfs", "delta", "duckdb", "endpoint", "gs", "iceberg", "mlflow", "pkcs11", "postgresql", "reject-option", "s3",
    "shift-inference",
)  # fmt: skip
LONG = (
    "all-inputs", "alternatives", "barycenter", "budro", "cards", "consistency", "correlation-remover",
    "correspondence", "counterfactuals", "data", "dif", "disparate-impact-remover", "exponentiated-gradient",
    "exposure", "fair-regression", "fairgbm", "group", "laws", "linear-post", "massaging", "multicalibrate",
    "project", "restricted-dro", "reweigh", "rto", "sensei", "subgroups", "threshold-optimizer", "why",
)  # fmt: skip
SETTINGS = {"exponentiated-gradient": {"iterations": 2}}


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_contract(name):
    broken = [one for one in run_checks(name, settings=SETTINGS.get(name)) if one.status == "failed"]
    assert broken == []


def test_no_plugin_of_ours_is_left_out():
    assert {one.name for one in plugins.find() if one.built_in} == {*QUICK, *LONG}


def test_show_names_all_that_a_plugin_offers():
    """A kind of classes that it forgot could be asked for, and was shown nowhere."""
    from fairkit_cli.plugins import describe

    for found in plugins.find():
        plugin = plugins.load(found.name)
        shown = [entry["name"] for kind in describe(plugin).values() if isinstance(kind, list) for entry in kind]
        assert sorted(shown) == sorted(cls.name for classes in plugin.classes.values() for cls in classes)
