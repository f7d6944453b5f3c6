"""Numbers outside [0, 1] that decide: logits, or ranks and other values that only look like them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.read.nodes import ancestors

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

FARTHEST = 0.15
"""Logits of a model that was fitted to such data give a mean probability within this of the share of favorable rows."""
MOSTLY = 0.8
"""With this share of the numbers in [0, 1], they are no logits but a regression of 0 and 1 that leaves the range."""


def check_logits(
    values: NDArray[np.float64], turned: bool, favorable: NDArray[np.bool_] | None, graph: onnx.GraphProto, output: str
) -> None:
    """Refuse to make decisions from numbers that were taken for logits and do not behave like them."""
    if values.ndim > 1 or favorable is None or not len(values):
        return
    if any(node.op_type == "TreeEnsembleRegressor" for node in ancestors(graph, [output])):
        raise ModelError(
            f"the model's scores, from {values.min():.3g} to {values.max():.3g}, leave [0, 1] and are sums of trees "
            "that do not classify: a ranking, or a regression? Of a ranking give the column of queries with `query`; "
            "of a regression the task with `task`. Neither has a threshold of its own. If they are logits say so with "
            "`score_kind` logit; if they are points, give the `threshold` in their own unit with `score_kind` value"
        )
    within = float(((values >= 0) & (values <= 1)).mean())
    shown = f"the model's scores, from {values.min():.3g} to {values.max():.3g},"
    if within >= MOSTLY:
        raise ModelError(
            f"{shown} leave [0, 1] in {1 - within:.1%} of the first rows only: a regression of 0 and 1? Decisions "
            "cannot be made from them as they are. Clip them in the graph, say that they are logits with "
            "`score_kind` logit, or audit a column of decisions with `predictions`"
        )
    chance = 0.5 * (1 + np.tanh(0.5 * values))
    mean = float(chance.mean()) if not turned else 1 - float(chance.mean())
    share = float(favorable.mean())
    if abs(mean - share) > FARTHEST:
        raise ModelError(
            f"{shown} leave [0, 1]. As logits they would mean a favorable share of {mean:.2f}, and {share:.2f} of the "
            "rows are favorable: are they ranks, or values on another scale? If they are logits say so with "
            "`score_kind` logit; if they are points, give the `threshold` in their own unit with `score_kind` value"
        )
