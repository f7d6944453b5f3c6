"""FairGBM: gradient boosting with fairness constraints, on stock LightGBM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.mitigators import Mitigator

# equal opportunity is a limit on a smooth stand-in of the rate: at tolerance 0 a real gap may stay
FAIRKIT_CHECK_SETTINGS = {"tolerance": 0.05}


@hookimpl
def fairkit_mitigators() -> list[type[Mitigator]]:
    """Return the mitigator `fairgbm`."""
    from fairkit_fairgbm.plugin import FairGBM

    return [FairGBM]
