"""FairGBM: gradient boosting with fairness constraints, on stock LightGBM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.mitigators import Mitigator


@hookimpl
def fairkit_mitigators() -> list[type[Mitigator]]:
    """Give the mitigator `fairgbm`."""
    from fairkit_fairgbm.plugin import FairGBM

    return [FairGBM]
