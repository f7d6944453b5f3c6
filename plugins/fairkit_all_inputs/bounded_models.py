"""The model behind a scorer, in a form that is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.errors import ModelError
from fairkit_all_inputs.bounds.classes.model import ClassModel, read_classes
from fairkit_onnx.read.scorer import OnnxScorer
from fairkit_onnx.structure.linear import LinearModel, read_linear
from fairkit_onnx.structure.trees import TreeModel, read_trees

if TYPE_CHECKING:
    from fairkit.auditors import AuditContext


def opened(context: AuditContext) -> TreeModel | LinearModel | ClassModel:
    """Read the model."""
    scorer = context.scorer
    if not isinstance(scorer, OnnxScorer):
        raise ModelError(
            f"all-inputs: {scorer.info.name} is no ONNX file, so what is inside is not known; export it to ONNX"
        )
    if scorer.task == "multiclass":
        return read_classes(scorer)
    model: TreeModel | LinearModel | None = read_trees(scorer, grouped=True) or read_linear(scorer, grouped=True)
    if model is None:
        kinds = sorted({node.op_type for node in scorer.model.proto.graph.node})
        raise ModelError(
            f"all-inputs: {scorer.info.name} is not understood (its nodes are {', '.join(kinds)}); sums of "
            "trees and linear models are; for a network run alpha,beta-CROWN on the ONNX file"
        )
    return model
