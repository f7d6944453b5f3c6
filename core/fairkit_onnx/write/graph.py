"""Building ONNX graphs: nodes with unique names, one opset, other graphs inlined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray


OPSET = 15
"""Of the default domain: read by onnxruntime 1.10 (2021) and everything since."""
ML_OPSET = 3
"""Of ai.onnx.ml: trees, label encoders."""
IR_VERSION = 8
ROWS = "rows"
"""The name of the free first dimension."""
_MESSAGE = 300
RESERVED = ("score", "decision_probability", "decision", "member_scores", "u")
"""Names of fairkit's own outputs and input, which no column may bear."""

ElementType = Literal["float", "double", "string", "int64"]
_TYPES: dict[ElementType, Any] = {"float": np.float32, "double": np.float64, "string": object, "int64": np.int64}


class GraphWriter:
    """Adds nodes and constants with unique names to a graph; `GraphBuilder` begins one, `Appender` goes on with one.

    `nodes`, `initializers`: the graph's, to append to; `prefix`: inner names begin with it: no column name is expected
    to; `numbers`: the element type of constants that are given without one.
    """

    def __init__(self, nodes: Any, initializers: Any, *, prefix: str, numbers: Any) -> None:
        self._nodes, self._initializers = nodes, initializers
        self._prefix, self._numbers = prefix, numbers
        self._count = 0

    def node(self, op: str, inputs: Sequence[str | float], *, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and return the output's name; a number among the inputs becomes a constant."""
        return self.nodes(op, inputs, 1, domain=domain, **attributes)[0]

    def nodes(
        self, op: str, inputs: Sequence[str | float], outputs: int, *, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs and return their names."""
        from onnx import helper

        given = [item if isinstance(item, str) else self.constant([[item]]) for item in inputs]
        name = self._fresh(op)
        names = [name if index == 0 else f"{name}/{index}" for index in range(outputs)]
        self._nodes.append(helper.make_node(op, given, names, name=name, domain=domain, **attributes))
        return names

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Add a constant tensor and return its name."""
        from onnx import numpy_helper

        name = self._fresh("constant")
        array: NDArray[Any] = np.asarray(values, dtype=self._numbers if dtype is None else dtype)
        self._initializers.append(numpy_helper.from_array(array, name))
        return name

    def cast(self, value: str, dtype: Any) -> str:
        """Convert a value to a numpy type."""
        from onnx import helper

        return self.node("Cast", [value], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """Reshape the value; -1 stands for what is left."""
        return self.node("Reshape", [value, self.constant(shape, np.int64)])

    def _identity(self, name: str, value: str) -> None:
        """Bear a value under a second name, as outputs need it."""
        from onnx import helper

        self._nodes.append(helper.make_node("Identity", [value], [name], name=self._output_node(name)))

    def _output_node(self, name: str) -> str:
        return f"{self._prefix}/output/{name}"

    def _fresh(self, hint: str) -> str:
        self._count += 1
        return f"{self._prefix}/{hint}_{self._count}"


class GraphBuilder(GraphWriter):
    """Collects the nodes of a graph of our own; constants are float32."""

    def __init__(self) -> None:
        super().__init__([], [], prefix="fairkit", numbers=np.float32)
        self._inputs: dict[str, onnx.ValueInfoProto] = {}
        self._outputs: list[onnx.ValueInfoProto] = []
        self._domains = {"": OPSET, "ai.onnx.ml": ML_OPSET}

    def input(self, name: str, kind: ElementType, width: int = 1) -> str:
        """Declare an input of shape [rows, width]; once is enough however often it is asked for.

        Raises
        ------
        ModelError
            The name is one of fairkit's outputs.
        """
        if name in RESERVED[:-1]:
            raise ModelError(f"a column cannot be called {name!r}: the exported model gives an output that name")
        if name not in self._inputs:
            self._inputs[name] = value_info(name, _TYPES[kind], width)
        return name

    def output(self, name: str, value: str, kind: ElementType = "float", width: int | None = 1) -> None:
        """Declare an inner value to be an output of shape [rows, width]; a width of None is left free."""
        self._identity(name, value)
        self._outputs.append(value_info(name, _TYPES[kind], width))

    def inline(self, model: onnx.ModelProto, feeds: Mapping[str, str]) -> dict[str, str]:
        """Put another model's nodes here.

        `model`: with inputs that are all keys of `feeds`, of the opset of this builder or one that converts to it;
        `feeds`: the other model's inputs and the values here that they become; returns the other model's outputs and
        their names here.
        """
        from onnx import version_converter

        versions = {entry.domain or "": entry.version for entry in model.opset_import}
        if versions.get("", OPSET) != OPSET:
            model = version_converter.convert_version(model, OPSET)
        for domain, version in versions.items():
            self._domains.setdefault(domain, version)
        prefix = self._fresh("inner") + "/"
        names = {name: prefix + name for name in _values_of(model.graph)} | dict(feeds) | {"": ""}
        for tensor in model.graph.initializer:
            copied = type(tensor)()
            copied.CopyFrom(tensor)
            copied.name = names[tensor.name]
            self._initializers.append(copied)
        for node in model.graph.node:
            moved = type(node)()
            moved.CopyFrom(node)
            moved.name = prefix + node.name if node.name else self._fresh("node")
            moved.input[:] = [names[name] for name in node.input]
            moved.output[:] = [names[name] for name in node.output]
            self._nodes.append(moved)
        return {output.name: names[output.name] for output in model.graph.output}

    def build(self, *, producer_version: str = "") -> onnx.ModelProto:
        """Return the checked model.

        Raises
        ------
        ModelError
            The graph breaks ONNX's rules (a bug of whoever built it).
        """
        from onnx import helper

        graph = helper.make_graph(
            self._nodes, "fairkit", list(self._inputs.values()), self._outputs, initializer=self._initializers
        )
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._domains.items()]
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=IR_VERSION,
            producer_name="fairkit",
            producer_version=producer_version,
        )
        return checked(model, "the exported graph")

    def _output_node(self, name: str) -> str:
        return f"output/{name}"


def _values_of(graph: onnx.GraphProto) -> list[str]:
    names = [tensor.name for tensor in graph.initializer]
    return names + [name for node in graph.node for name in node.output if name]


def value_info(name: str, dtype: Any, width: int | None = 1) -> onnx.ValueInfoProto:
    """Declare a value of shape [rows, width]; `dtype` is a numpy type, object for text; a width of None is free."""
    from onnx import TensorProto, helper

    kind = np.dtype(dtype)
    code = TensorProto.STRING if kind == np.dtype(object) else helper.np_dtype_to_tensor_dtype(kind)
    return helper.make_tensor_value_info(name, code, [ROWS, width])


def first_line(error: Exception) -> str:
    """Return the first line of a library's message, at most 300 characters of it: some print whole models."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if len(lines[0]) <= _MESSAGE else lines[0][:_MESSAGE] + " ..."


def checked(model: onnx.ModelProto, what: str) -> onnx.ModelProto:
    """Return a model that keeps ONNX's rules.

    Raises
    ------
    ModelError
        It breaks them; `what` names it.
    """
    import onnx

    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"{what} is not valid ONNX: {first_line(error)}") from error
    return model


# Randomized models as one graph: members with weights in, score, decision probability and decision out.


def add_mixture_outputs(graph: GraphBuilder, scores: str, weights: Sequence[float]) -> None:
    """Declare the outputs of a binary model that draws one of its members for every decision.

    With members' scores s_k and weights w_k: ``score = sum w_k s_k``, ``decision_probability = sum of w_k
    over the members with s_k >= 1/2``, ``decision = u < decision_probability`` for the input ``u``
    in [0, 1), which whoever deploys the model draws.
    """
    shares = check_weights(weights)
    column = graph.constant(shares.reshape(-1, 1))
    graph.output("score", graph.node("MatMul", [scores, column]))
    favorable = graph.node("GreaterOrEqual", [scores, 0.5])
    chance = graph.node("MatMul", [graph.node("Cast", [favorable], to=1), column])
    add_decision(graph, graph.node("Min", [chance, 1.0]))


def add_decision(graph: GraphBuilder, chance: str) -> None:
    """Declare ``decision_probability`` and ``decision = u < decision_probability`` from chances [rows, 1]."""
    graph.output("decision_probability", chance)
    decided = graph.node("Less", [graph.input("u", "float"), chance])
    graph.output("decision", graph.node("Cast", [decided], to=7), "int64")


def stack_members(graph: GraphBuilder, members: Sequence[str]) -> str:
    """Put members' scores, each [rows, 1], side by side: [rows, k]."""
    return members[0] if len(members) == 1 else graph.node("Concat", list(members), axis=1)


def add_prefix_sums(graph: GraphBuilder, parts: str, count: int) -> str:
    """Turn parts [rows, k] into prefix sums [rows, k]: members that share their first trees."""
    if count == 1:
        return parts
    return graph.node("MatMul", [parts, graph.constant(np.triu(np.ones((count, count))))])


def mixture_chance(scores: NDArray[np.float64], weights: Sequence[float]) -> NDArray[np.float64]:
    """Return the decision probability in memory, shape [n], from members' scores [n, k]."""
    chance: NDArray[np.float64] = (scores >= 0.5) @ check_weights(weights)
    return np.minimum(chance, 1.0)


def check_weights(weights: Sequence[float]) -> NDArray[np.float64]:
    """Return the weights as an array; raises ModelError unless they are a distribution."""
    shares = np.asarray(weights, dtype=float)
    if len(shares) == 0 or not np.isfinite(shares).all() or shares.min() < 0 or abs(shares.sum() - 1) > 1e-9:
        raise ModelError(f"the mixture's weights must be nonnegative and add up to 1, not {list(weights)}")
    return shares
