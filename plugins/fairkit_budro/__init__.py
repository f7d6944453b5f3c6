"""BuDRO: gradient boosting that is individually fair, on stock XGBoost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.mitigators import Mitigator

# quicker, not different
FAIRKIT_CHECK_SETTINGS = {"n_estimators": 20, "learning_rate": 0.2}


@hookimpl
def fairkit_mitigators() -> list[type[Mitigator]]:
    """Return the mitigator `budro`."""
    from fairkit_budro.plugin import BuDRO

    return [BuDRO]
