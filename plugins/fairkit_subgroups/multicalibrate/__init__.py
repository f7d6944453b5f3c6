"""Scores that are right on average in every group that a few conditions describe: corrections on top of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.mitigators import Mitigator


@hookimpl
def fairkit_mitigators() -> list[type[Mitigator]]:
    """Return the mitigator."""
    from fairkit_subgroups.multicalibrate.plugin import Multicalibrate

    return [Multicalibrate]
