"""Every plugin that ships with fairkit has a file of tests that holds it to the contract of all plugins."""

from __future__ import annotations

import re
from pathlib import Path

from fairkit import plugins

TESTS = Path(__file__).parents[1]


def test_every_plugin_of_ours_has_its_contract_tested():
    checked = {
        name
        for path in TESTS.rglob("test_contract.py")
        for name in re.findall(r'contract\("([\w-]+)"', path.read_text("utf-8"))
    }
    targets = {plugin.name: plugin.target for plugin in plugins.find() if plugin.built_in}
    assert {targets[name] for name in checked} == set(targets.values())
    assert len(checked) >= 30


def test_show_names_all_that_a_plugin_offers():
    """A kind of classes that it forgot could be asked for, and was shown nowhere."""
    from fairkit_cli.plugins import describe

    for found in plugins.find():
        plugin = plugins.load(found.name)
        shown = [entry["name"] for kind in describe(plugin).values() if isinstance(kind, list) for entry in kind]
        assert sorted(shown) == sorted(cls.name for classes in plugin.classes.values() for cls in classes)
