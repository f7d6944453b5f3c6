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
