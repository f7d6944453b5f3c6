"""Every plugin that ships with fairkit passes every check that others have to pass."""

from __future__ import annotations

import pytest

from fairkit import plugins
from fairkit_testing import checks_for

SETTINGS = {
    "exponentiated-gradient": {"iterations": 2},
}
"""Quicker ones, for here alone; those in a plugin's FAIRKIT_CHECK_SETTINGS hold for `fairkit plugins check` too."""

EXPECTED: dict[str, dict[str, str]] = {}
"""Checks that a plugin fails on purpose, each with its reason."""


def built_in() -> list[plugins.Plugin]:
    """Ours, each module once: two names may share one."""
    loaded = {plugin.target: plugin.name for plugin in plugins.find() if plugin.built_in}
    return [plugins.load(name) for name in sorted(loaded.values())]


def checks():
    for plugin in built_in():
        name = plugin.found.name
        for check in checks_for(plugin, settings=SETTINGS.get(name), expected_failures=EXPECTED.get(name)):
            marks = [pytest.mark.xfail(reason=check.reason, strict=True)] if check.reason else []
            yield pytest.param(check.run, id=f"{name}-{check.id}", marks=marks)


@pytest.mark.long
@pytest.mark.parametrize("check", [*checks()])
def test_it_passes(check):
    check()


def test_all_of_ours_are_checked():
    targets = {plugin.found.target for plugin in built_in()}
    assert targets == {plugin.target for plugin in plugins.find() if plugin.built_in}
    assert len(targets) >= 14
