"""Networks that are invariant on sensitive sets: SenSeI, SenSR, counterfactual logit pairing.

From Python, beside ``fairkit.mitigate("sensei", ...)``: `fit_network` trains on any matrix of features, and
`swap_words` makes counterfactual sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.mitigators import Mitigator
    from fairkit_sensei.fitting import fit_network
    from fairkit_sensei.metric import swap_words
    from fairkit_sensei.plugin import SenSeI

__all__ = ["SenSeI", "fit_network", "swap_words"]

# quicker, not different: what is checked does not need a network that has learned all it can
FAIRKIT_CHECK_SETTINGS = {"epochs": 2, "hidden": [16]}

_HOMES = {"SenSeI": "plugin", "fit_network": "fitting", "swap_words": "metric"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


@hookimpl
def fairkit_mitigators() -> list[type[Mitigator]]:
    """Return the mitigator `sensei`."""
    from fairkit_sensei.plugin import SenSeI

    return [SenSeI]
