"""What follows a sum: links that keep its order are read, and what might turn it is refused by the node's name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from fairkit.errors import ModelError
from fairkit_onnx.structure.monotone import check_monotone

node, numpy_helper = onnx.helper.make_node, onnx.numpy_helper
BOTH = {"p": (-1, 1)}
ONE = {"s": (1,)}


def checked(nodes, start, **constants):
    graph = onnx.helper.make_graph(
        nodes, "g", [], [], [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    )
    check_monotone(graph, nodes, start)


FIRST = np.array([0])
SECOND = np.array([1])
ENDS = {"z": np.float32([0]), "o": np.float32([1])}
READ = {
    "the favorable column": ([node("Gather", ["p", "at"], ["q"], axis=1), node("Greater", ["q", "c"], ["d"])], BOTH,
                             {"at": SECOND, "c": np.float32([0.2])}),
    "the label of the larger": ([node("ArgMax", ["p"], ["d"], axis=1), node("Equal", ["d", "one"], ["e"])], BOTH,
                                {"one": np.array([1])}),
    "clipped": ([node("Max", ["s", "z"], ["t"]), node("Min", ["t", "o"], ["u"])], ONE,
                ENDS),
    "two steps that rise": ([node("Greater", ["s", "z"], ["a"]), node("Greater", ["s", "o"], ["b"]),
                             node("And", ["a", "b"], ["d"])], ONE, ENDS),
    "a row of a table": ([node("Gather", ["table", "group"], ["t"]), node("Sub", ["s", "t"], ["u"]),
                          node("Mul", ["u", "t"], ["v"])], ONE, {"table": np.float32([[0.1], [0.4]])}),
    "one of two columns, cut out": ([node("Slice", ["p", "at", "to", "on", "by"], ["q"])], BOTH,
                                    {"at": SECOND, "to": np.array([2]), "on": SECOND, "by": SECOND}),
    "shares of two": ([node("Sigmoid", ["p"], ["q"]), node("Abs", ["q"], ["a"]), node("ReduceSum", ["a"], ["n"]),
                       node("Div", ["q", "n"], ["r"])], BOTH, {}),
}  # fmt: skip
REFUSED = {
    "a band between two steps": ([node("Greater", ["s", "z"], ["a"]), node("Less", ["s", "o"], ["b"]),
                                  node("And", ["a", "b"], ["d"])], ONE, ENDS, "And"),
    "two columns that go against each other": (
        [node("Gather", ["p", "at"], ["q"], axis=1), node("Gather", ["p", "to"], ["r"], axis=1),
         node("Add", ["q", "r"], ["d"])], BOTH, {"at": FIRST, "to": SECOND}, "Add"),
    "steps of several columns": ([node("Sub", ["s", "some"], ["u"]), node("Greater", ["u", "z"], ["a"]),
                                  node("Equal", ["a", "yes"], ["d"])], ONE,
                                 {"some": np.float32([[0.1, 0.4]]), "yes": np.array([True]), **ENDS}, "Equal"),
    "an unknown column": ([node("Gather", ["p", "which"], ["q"], axis=1)], BOTH, {}, "Gather"),
    "rows cut out, with steps and no axes": ([node("Slice", ["p", "at", "to", "", "by"], ["q"])], BOTH,
                                             {"at": SECOND, "to": np.array([2]), "by": SECOND}, "Slice"),
    "a table of two signs": ([node("Gather", ["table", "group"], ["t"]), node("Mul", ["s", "t"], ["v"])], ONE,
                             {"table": np.float32([[0.1], [-0.4]])}, "Mul"),
    "a distance": ([node("Abs", ["s"], ["d"])], ONE, {}, "Abs"),
    "shares of the sum of another": (
        [node("Sigmoid", ["p"], ["q"]), node("Exp", ["p"], ["o"]), node("ReduceSum", ["o"], ["n"]),
         node("Div", ["q", "n"], ["r"])], BOTH, {}, "Div"),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_links_that_keep_the_order_are_read(name):
    nodes, start, constants = READ[name]
    checked(nodes, start, **constants)


@pytest.mark.parametrize("name", REFUSED)
def test_links_that_may_turn_the_order_are_refused(name):
    nodes, start, constants, kind = REFUSED[name]
    with pytest.raises(ModelError, match=f"the node {kind} "):
        checked(nodes, start, **constants)
