"""The parameters of a fair metric that ignores a sensitive subspace, the same in every method that learns one."""

from __future__ import annotations

from typing import Any

from fairkit.parameters.declare import parameter


def strength_parameter(default: float = 0.1) -> Any:
    """Declare `strength`, a float: how much the regressions behind the subspace are held back.

    Weak penalties find directions that tell the sensitive columns better, strong ones directions that another sample of
    the rows gives again: an auditor needs the second, a method that trains the first.
    """
    return parameter(
        default,
        help="l2 penalty of the regressions that find the directions of a subspace, against their mean loss.",
        above=0,
    )


def directions_parameter() -> Any:
    """Declare `directions`, a tuple of names or None: whose predictors belong to the subspace."""
    return parameter(
        None, help="Sensitive columns whose predictors a subspace ignores, too; default: all; empty: none."
    )
