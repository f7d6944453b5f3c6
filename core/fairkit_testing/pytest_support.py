"""The checks as parameters of one pytest test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairkit.plugins.loading import Plugin


def parametrize_with_checks(
    plugin: str | Plugin,
    *,
    settings: Mapping[str, Any] | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> Callable[[Any], Any]:
    """Make a test of one argument, ``check``, run once for every check of a plugin.

    Expected failures become strict ``xfail`` marks with their reasons.

    Parameters
    ----------
    plugin, settings, expected_failures
        See `fairkit_testing.checks_for`.

    Examples
    --------
    >>> @parametrize_with_checks("my-plugin")                                         # doctest: +SKIP
    ... def test_contract(check):
    ...     check()
    """
    import pytest

    from fairkit_testing.contract import checks_for

    checks = checks_for(plugin, settings=settings, expected_failures=expected_failures)
    parameters = [
        # the mark, not the check, expects the failure: pytest then reports it
        pytest.param(
            check.run if check.reason else check,
            id=check.id,
            marks=[pytest.mark.xfail(reason=check.reason, strict=True)] if check.reason else [],
        )
        for check in checks
    ]
    return pytest.mark.parametrize("check", parameters)
