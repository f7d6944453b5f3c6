"""Adversarial debiasing: a network and an adversary that tries to read the group from its score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.mitigators import Mitigator

# quicker, not different: what is checked does not need a network that has learned all it can
FAIRKIT_CHECK_SETTINGS = {"epochs": 4, "hidden": [16]}


@hookimpl
def fairkit_mitigators() -> list[type[Mitigator]]:
    """Return the mitigator `adversarial-debiasing`."""
    from fairkit_adversarial_debiasing.plugin import AdversarialDebiasing

    return [AdversarialDebiasing]
