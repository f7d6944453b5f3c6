"""Appending nodes to somebody else's graph: its own names, operator versions and outputs stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.read.nodes import subgraphs, walk
from fairkit_onnx.write.graph import ML_OPSET, GraphWriter, checked, value_info

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

MIN_OPSET = 9
"""The first version of the default domain that has every operator that is appended (Where, IsNaN, MatMul)."""
FREE_INITIALIZERS = 4
"""From this version of the format on, initializers need not be inputs; nothing else changed from 3 to 4."""
_ML = "ai.onnx.ml"
_PREFIX = "fairkit/rule"


class Appender(GraphWriter):
    """Adds nodes to a copy of a model.

    Only operators are used whose meaning is the same in every opset from `MIN_OPSET` on, so that the model's
    own nodes need no conversion.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = type(model)()
        self.model.CopyFrom(model)
        self.graph = self.model.graph
        self._taken = set(_all_names(self.graph))
        prefix = _PREFIX
        while any(name.startswith(f"{prefix}/") for name in self._taken):  # the model has a rule of ours already
            prefix += "_"
        super().__init__(self.graph.node, self.graph.initializer, prefix=prefix, numbers=np.float64)
        _raise_opset(self.model)

    @property
    def encodes_labels(self) -> bool:
        """Whether the model's ai.onnx.ml has the LabelEncoder that takes lists of keys (version 2)."""
        return _version(self.model, _ML) >= 2

    def input(self, name: str, dtype: Any) -> str:
        """Add an input of shape [rows, 1]; `dtype` is a numpy type, object for text."""
        if name in self._taken:
            raise ModelError(
                f"the model uses the name {name!r} for a value of its own, so that it cannot be an input; "
                "rename the column, or export the model with other names"
            )
        self._taken.add(name)
        self.graph.input.append(value_info(name, dtype))
        return name

    def output(self, name: str, value: str, dtype: Any) -> None:
        """Make a value an output [rows, 1]; the model's own of that name becomes ``base_...``."""
        if name in self._taken:
            self._rename(name, self._free_name(f"base_{name}"))
        self._taken.add(name)
        self._identity(name, value)
        self.graph.output.append(value_info(name, dtype))

    def finish(self) -> onnx.ModelProto:
        """Return the checked model."""
        return checked(self.model, "the model with the rule appended")

    def _fresh(self, hint: str) -> str:
        return self._free_name(super()._fresh(hint))

    def _free_name(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _rename(self, old: str, new: str) -> None:
        """Rename a value wherever it stands, also in the bodies of loops and branches."""
        if old in {entry.name for entry in self.graph.input}:
            raise ModelError(
                f"the model has an input {old!r}, the name of an output of the repaired model; "
                "rename that column and export the model again"
            )
        for graph in _graphs(self.graph):
            for node in graph.node:
                node.input[:] = [new if name == old else name for name in node.input]
                node.output[:] = [new if name == old else name for name in node.output]
            named: list[Any] = [*graph.output, *graph.value_info, *graph.initializer]
            for entry in named:
                if entry.name == old:
                    entry.name = new


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Walk the graph and the bodies of its loops and branches, at every depth."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graphs(inner)


def _all_names(graph: onnx.GraphProto) -> Iterator[str]:
    for part in _graphs(graph):
        named: list[Any] = [*part.input, *part.output, *part.initializer]
        yield from (entry.name for entry in named)
        for node in part.node:
            yield node.name
            yield from node.output


def _version(model: onnx.ModelProto, domain: str) -> int:
    return max((entry.version for entry in model.opset_import if (entry.domain or "") == domain), default=0)


def _raise_opset(model: onnx.ModelProto) -> None:
    """Declare the operator sets that the appended nodes need.

    A set may be raised without touching the nodes where none of them changed in between; ai.onnx.ml changed
    one operator from version 1 to 2, so that a model of version 1 is left alone where it uses that one.
    """
    from onnx import helper

    # what is appended brings initializers that are no inputs
    model.ir_version = max(model.ir_version, FREE_INITIALIZERS)
    if not _version(model, _ML):
        model.opset_import.append(helper.make_opsetid(_ML, ML_OPSET))
    elif _version(model, _ML) == 1 and all(node.op_type != "LabelEncoder" for node in walk(model.graph.node)):
        _declare(model, _ML, 2)
    if not _version(model, ""):
        model.opset_import.append(helper.make_opsetid("", 13))
    if _version(model, "") < MIN_OPSET:
        _refuse_changed(model)
        _declare(model, "", MIN_OPSET)


def _declare(model: onnx.ModelProto, domain: str, version: int) -> None:
    for entry in model.opset_import:
        if (entry.domain or "") == domain:
            entry.version = version


def _refuse_changed(model: onnx.ModelProto) -> None:
    import onnx

    old = _version(model, "")
    for part in _graphs(model.graph):
        for node in part.node:
            if node.domain in ("", "ai.onnx") and (
                onnx.defs.get_schema(node.op_type, old, "").since_version
                != onnx.defs.get_schema(node.op_type, MIN_OPSET, "").since_version
            ):
                raise ModelError(
                    f"the model is of opset {old}, whose operator {node.op_type} has changed since; "
                    f"export it again with opset {MIN_OPSET} or later (13 is a good choice)"
                )
