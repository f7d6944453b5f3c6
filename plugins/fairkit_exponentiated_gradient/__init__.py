"""Exponentiated gradient as fairlearn has it: a randomized mixture of classifiers under a parity constraint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.mitigators import Mitigator


@hookimpl
def fairkit_mitigators() -> list[type[Mitigator]]:
    """Return the mitigator `exponentiated-gradient`."""
    from fairkit_exponentiated_gradient.plugin import ExponentiatedGradient

    return [ExponentiatedGradient]
