"""Bounds of networks against sampling, enumeration and a MILP; rounding against onnxruntime; proof logs."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

from fairkit.errors import DataError, ModelError
from fairkit_all_inputs.bounds.forest import Layout
from fairkit_all_inputs.bounds.networks.aims import objective
from fairkit_all_inputs.bounds.networks.bounds import bounds
from fairkit_all_inputs.bounds.networks.boxes import CellFeatures
from fairkit_all_inputs.bounds.networks.climbing import Climber
from fairkit_all_inputs.bounds.networks.problem import NetworkProblem
from fairkit_all_inputs.bounds.networks.proof import proved_network
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE
from fairkit_all_inputs.bounds.questions import answer, log_of
from fairkit_all_inputs.bounds.searching import Effort
from fairkit_onnx.structure.domain import Block
from fairkit_onnx.structure.networks.layers import RELU, SIGMOID, TANH, Layer, gradient, output
from fairkit_onnx.structure.networks.reading import Reader

KINDS = (SCORE, FLIP, CHANCE)


def block(name, size, *, ordered):
    ends = np.arange(size, dtype=float) if ordered else None
    return Block(name=name, columns=(name,), ordered=ordered, values={name: np.arange(size)}, ends=ends)


def made(seed, widths=(6, 4), kinds=(RELU, RELU), sizes=(9, 5, 3, 2), *, wide=0.4, threshold=0.1):
    """Two columns of numbers, a one-hot column of three values and one of two that changes."""
    rng = np.random.default_rng(seed)
    ordered = (True, True, False, False)
    blocks = [block(f"c{i}", size, ordered=flat) for i, (size, flat) in enumerate(zip(sizes, ordered, strict=True))]
    features, first, last, start = [], [], [], 0
    for size, flat in zip(sizes, ordered, strict=True):
        width = 1 if flat else size
        features.append(np.arange(start, start + width))
        start += width
        low = np.linspace(-1, 1, size)[:, None] if flat else np.eye(size)
        first.append(low)
        last.append(low + (wide * 2 / size if flat else 0.0))
    layout = Layout.of([*sizes[:3], 1], [*ordered[:3], True])
    cells = CellFeatures(layout, 3, features, first, last, np.zeros(start))
    layers, before = [], start
    for width, kind in zip((*widths, 1), (*kinds, 0), strict=True):
        weights = rng.normal(size=(width, before)).astype(np.float32).astype(float)
        size = np.abs(weights)
        layers.append(Layer(weights, rng.normal(size=width) * 0.5, size, 1e-7 * size, np.full(width, 1e-7),
                            np.full(width, kind, dtype=np.int8)))  # fmt: skip
        before = width
    return NetworkProblem(
        blocks=blocks, cells=cells, layers=layers, encode=lambda columns: columns, threshold=threshold, logistic=True
    )


def drawn(problem, packed, rng, count):
    """Inputs in a box: features without the changing block."""
    cells = problem.cells
    found = np.zeros((count, len(cells.fixed)))
    for place in range(3):
        allowed = np.flatnonzero(cells.mask(packed[None, :], place)[0])
        chosen = rng.choice(allowed, count)
        share = rng.choice([0.0, 1.0, rng.random()], (count, 1))
        found[:, cells.features[place]] = (1 - share) * cells.first[place][chosen] + share * cells.last[place][chosen]
    return found


@pytest.mark.parametrize("kinds", list(itertools.product((RELU, SIGMOID, TANH), repeat=2)))
def test_no_input_of_a_box_is_beyond_its_bounds(kinds):
    rng = np.random.default_rng(3)
    for seed in range(4):
        problem = made(seed, kinds=kinds)
        sides = problem.sides((0, 1))
        packed = []
        for _ in range(8):
            one = np.sort(rng.integers(0, 9, 2)), np.sort(rng.integers(0, 5, 2))
            packed.append([*one[0], *one[1], rng.integers(1, 8), 0, 0])
        found = bounds(problem.layers, problem.cells.opened(np.array(packed)), sides, whole=True)
        for row, box in enumerate(np.array(packed)):
            inputs = drawn(problem, box, rng, 200)
            f, g = (output(problem.layers, inputs + side) for side in sides)
            assert (f - g).max() <= found.gap[row] + 1e-9
            assert f.max() <= found.first[row] + 1e-9
            assert found.least[row] - 1e-9 <= g.min()
            assert g.max() <= found.most[row] + 1e-9


def signs_of(problem, inputs, pair):
    """The signs of all units of both runs, shape [n, 2 · units]."""
    found = []
    for side in problem.sides(pair):
        values = inputs + side
        for layer in problem.layers[:-1]:
            sums = values @ layer.weights.T + layer.bias
            found.append(np.sign(sums))
            values = np.maximum(sums, 0.0)
    return np.concatenate(found, axis=1)


@pytest.mark.long
def test_no_input_with_the_signs_of_split_units_is_beyond_the_bound_of_a_linear_programme():
    rng = np.random.default_rng(5)
    for seed in range(6):
        problem = made(seed, widths=(6, 4, 3), kinds=(RELU,) * 3)
        inputs = drawn(problem, problem.root[0], rng, 4_000)
        signs = signs_of(problem, inputs, (0, 1))
        f, g = (output(problem.layers, inputs + side) for side in problem.sides((0, 1)))
        loose, _, _ = problem.bound(SCORE, (0, 1), problem.root, np.zeros((1, 26), dtype=np.int8), np.inf)
        for kind, best in (
            (SCORE, f - g),
            (FLIP, objective(FLIP, f, g, (0.1, 0.1))),
            (CHANCE, objective(CHANCE, f, g, (0.1, 0.1))),
        ):
            for count in (0, 2, 6):
                split = rng.choice(26, count, replace=False)
                held = np.zeros((1, 26), dtype=np.int8)
                held[0, split] = signs[rng.integers(len(signs)), split]
                inside = (signs[:, split] == held[:, split]).all(axis=1)
                found, extra, _ = problem.bound(kind, (0, 1), problem.root, held, -np.inf)
                assert best[inside].max() <= found[0] + extra[0]
                if kind == SCORE:
                    assert found[0] <= loose[0] + 1e-9


def test_a_log_with_split_units_is_recomputed_and_a_hostile_one_refused():
    problem = made(2, widths=(4, 3), sizes=(128, 128, 3, 2), wide=1.0)
    got = answer(problem, SCORE, effort=Effort(boxes=400))
    log = json.loads(json.dumps(log_of(problem, got)))
    pair = max(log, key=lambda one: sum(entry != 0 and entry[0] == "u" for entry in log[one]))
    place = next(i for i, entry in enumerate(log[pair]) if entry != 0 and entry[0] == "u")
    assert proved_network(problem, SCORE, log, got.upper) == pytest.approx(got.upper, abs=1e-6)
    entries = log[pair]
    for broken in (
        [["u", 14], 0, 0],
        [["u", -1], 0, 0],
        [["u", True], 0, 0],
        [["u", "0"], 0, 0],
        [["u", 0], ["u", 0], 0, 0, 0],
        [["u", 0], 0],
        [*entries[:place], *entries[place + 1 :]],
        [["u", 0, 1], 0, 0],
        [[2, "x"], 0, 0],
    ):
        with pytest.raises(DataError, match="log"):
            proved_network(problem, SCORE, {**log, pair: broken}, got.upper)
    closed = {**log, pair: [0]}  # the signs that the splits prove are not there
    assert proved_network(problem, SCORE, closed, got.upper) > got.upper + 1e-3


def corners(problem):
    """Every input at a cell's end, features without the changing block."""
    cells = problem.cells
    options = [np.unique(np.concatenate([cells.first[b], cells.last[b]]), axis=0) for b in range(3)]
    found = []
    for parts in itertools.product(*options):
        row = np.zeros(len(cells.fixed))
        for place, part in enumerate(parts):
            row[cells.features[place]] = part
        found.append(row)
    return np.array(found)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_holds_every_input_and_closes_on_the_best(kind):
    for seed in range(4):
        problem = made(seed, wide=0.0)  # a cell is one number: the corners are all there is
        got = answer(problem, kind, effort=Effort(boxes=20_000))
        every = corners(problem)
        best = max(
            objective(kind, *(output(problem.layers, every + side) for side in problem.sides(pair)), (0.1, 0.1)).max()
            for pair in problem.pairs
        )
        if kind == FLIP:
            assert (got.upper > 0.0) == (best > -2e-6) or abs(best) < 1e-5
            assert got.lower <= best + 1e-9
            continue
        assert got.lower == pytest.approx(best, abs=1e-5)
        assert best <= got.upper <= best + 1e-4
        log = json.loads(json.dumps(log_of(problem, got)))
        assert proved_network(problem, kind, log) == pytest.approx(got.upper, abs=1e-12)


@pytest.mark.long
def test_the_bound_is_that_of_a_mixed_integer_programme():
    for seed in range(3):
        problem = made(seed, widths=(4, 3), sizes=(64, 64, 3, 2), wide=1.0)
        got = answer(problem, SCORE, effort=Effort(boxes=6_000))
        best = max(programme(problem, pair) for pair in problem.pairs)
        assert got.lower <= best + 1e-6
        assert best - 1e-6 <= got.upper
        assert got.upper - got.lower < 0.1 * max(1.0, best)


def programme(problem, pair):
    """The largest f - g by HiGHS: a binary for each unit of either run and each listed value."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    cells, low, high, whole, rows = problem.cells, [], [], [], []

    def variable(least, most, integer=0):
        low.append(least)
        high.append(most)
        whole.append(integer)
        return len(low) - 1

    inputs = [({}, 0.0)] * len(cells.fixed)
    for place in (0, 1):
        (number,) = cells.features[place]
        inputs[number] = ({variable(cells.first[place].min(), cells.last[place].max()): 1.0}, 0.0)
    hot = [variable(0, 1, 1) for _ in range(3)]
    rows.append((dict.fromkeys(hot, 1.0), 1, 1))
    for number, its in zip(cells.features[2], hot, strict=True):
        inputs[number] = ({its: 1.0}, 0.0)
    sums = []
    for side in problem.sides(pair):
        values = [(terms, constant + added) for (terms, constant), added in zip(inputs, side, strict=True)]
        for layer in problem.layers:
            made_here = []
            for weights, bias in zip(layer.weights, layer.bias, strict=True):
                terms, constant = {}, bias
                for weight, (its, more) in zip(weights, values, strict=True):
                    constant += weight * more
                    for v, a in its.items():
                        terms[v] = terms.get(v, 0.0) + weight * a
                if layer is not problem.layers[-1]:
                    y, on = variable(0, 100), variable(0, 1, 1)
                    less = {**{v: -a for v, a in terms.items()}, y: 1.0}
                    rows.append((less, constant, np.inf))
                    rows.append(({**less, on: 100.0}, -np.inf, constant + 100.0))
                    rows.append(({y: 1.0, on: -100.0}, -np.inf, 0.0))
                    terms, constant = {y: 1.0}, 0.0
                made_here.append((terms, constant))
            values = made_here
        sums.append(values[0])
    goal = np.zeros(len(low))
    for sign, (terms, _) in zip((1, -1), sums, strict=True):
        for v, a in terms.items():
            goal[v] += sign * a
    matrix = np.array([[terms.get(v, 0.0) for v in range(len(low))] for terms, _, _ in rows])
    limits = LinearConstraint(matrix, [row[1] for row in rows], [row[2] for row in rows])
    solved = milp(-goal, constraints=limits, integrality=whole, bounds=Bounds(low, high), options={"mip_rel_gap": 1e-9})
    return -solved.fun + sums[0][1] - sums[1][1]


def test_a_log_that_leaves_something_out_or_claims_too_much_is_refused():
    problem = made(1, wide=0.0)
    got = answer(problem, SCORE, effort=Effort(boxes=3_000))
    log = json.loads(json.dumps(log_of(problem, got)))
    with pytest.raises(DataError, match="1 pairs of values, and there are 2"):
        proved_network(problem, SCORE, {"0,1": log["0,1"]})
    for broken in ([*log["0,1"], 0], log["0,1"][:-1], [[0, "f"], 0, 0], [[2, 1], 0, 0], [[9, 1], 0, 0], ["x"]):
        with pytest.raises(DataError, match="log"):
            proved_network(problem, SCORE, {**log, "0,1": broken})
    assert proved_network(problem, SCORE, {"0,1": [0], "1,0": [0]}) > got.upper
    stronger = replace(
        problem, layers=[replace(problem.layers[0], weights=1.5 * problem.layers[0].weights), *problem.layers[1:]]
    )
    assert stronger.sha256 != problem.sha256


def graph(nodes, constants, width):
    helper = onnx.helper
    tensors = [onnx.numpy_helper.from_array(np.asarray(v, dtype=np.float32), k) for k, v in constants.items()]
    made_graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, width])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, None])], tensors,
    )  # fmt: skip
    return helper.make_model(made_graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def runner(proto):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x.astype(np.float32)})[0]


def read(proto, x):
    """The layers of a graph, its tensors' shapes taken from the runtime."""
    names = [name for node in proto.graph.node for name in node.output]
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])
    values = dict(zip(names, session.run(names, {"x": x[:3].astype(np.float32)}), strict=True))
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    reader = Reader(constants.get, {"x": x[:3], **values}, "x", x.shape[1])
    reader.follow(proto.graph.node)
    return reader.layers("y")


def operators(rng):
    """Graphs that between them have every operator that is read."""
    node = onnx.helper.make_node
    w, v, b, c = rng.normal(size=(5, 8)), rng.normal(size=(6, 8)), rng.normal(size=8), rng.normal(size=6)
    last = rng.normal(size=(6, 1))
    ends = {"low": np.float32(-0.3), "high": np.float32(0.8)}
    for middle in (
        [node("LeakyRelu", ["h"], ["u"], alpha=0.1)],
        [node("Clip", ["h", "low", "high"], ["u"])],
        [node("Clip", ["h", "", "high"], ["u"])],
        [node("Max", ["h", "low"], ["u"])],
        [node("Min", ["high", "h"], ["u"])],
        [node("HardSigmoid", ["h"], ["u"])],
        [node("Abs", ["h"], ["u"])],
        [node("PRelu", ["h", "below"], ["u"])],
        [node("Tanh", ["h"], ["t"]), node("Sigmoid", ["h"], ["s"]), node("Sub", ["t", "s"], ["u"])],
        [node("BatchNormalization", ["h", "scale", "b", "mean", "variance"], ["n"]), node("Relu", ["n"], ["u"])],
        [node("Relu", ["h"], ["r"]), node("Mul", ["r", "high"], ["m"]), node("Div", ["m", "low"], ["d"]),
         node("Neg", ["d"], ["e"]), node("Add", ["h", "e"], ["u"])],  # a residual connection
        [node("Relu", ["h"], ["r"]), node("Split", ["r"], ["p", "q"], axis=1),
         node("Concat", ["q", "p"], ["u"], axis=1)],
    ):  # fmt: skip
        nodes = [
            node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["h"]), *middle,
            node("Gemm", ["u", "v", "c"], ["z"], transB=1, alpha=0.5, beta=2.0), node("Relu", ["z"], ["k"]),
            node("MatMul", ["k", "last"], ["y"]),
        ]  # fmt: skip
        yield graph(nodes, {"w": w, "b": b, "v": v, "c": c, "last": last, **ends, "below": b, "scale": 1 + b**2,
                            "mean": b,                             "variance": 1 + b**2}, 5)  # fmt: skip


def test_layers_are_what_onnxruntime_runs_within_the_proved_rounding():
    rng = np.random.default_rng(0)
    x = (100 * rng.normal(size=(2_000, 5))).astype(np.float32)
    box = Layout.of([1, 1], [True, True])
    for proto in operators(rng):
        layers = read(proto, x)
        exact, served = output(layers, x.astype(float)), runner(proto)(x)[:, 0].astype(float)
        for row in range(0, 2_000, 500):
            point = [x[[row], :4].astype(float), x[[row], 4:].astype(float)]
            cells = CellFeatures(box, 1, [np.arange(4), np.arange(4, 5)], point, point, np.zeros(5))
            found = bounds(layers, cells.opened(np.zeros((1, 4), dtype=np.int64)), (cells.side(0),) * 2, whole=True)
            assert abs(exact[row] - served[row]) <= found.error[0], proto.graph.node[2].op_type
            assert found.least[0] - 1e-6 <= exact[row] <= found.first[0] + 1e-6
            assert found.still[0], "both sides are the same"
        np.testing.assert_allclose(exact, served, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(("kind", "function"), [("Sigmoid", lambda x: 0.5 * (1 + np.tanh(0.5 * x))), ("Tanh", np.tanh)])
def test_the_runtimes_curves_are_as_exact_as_assumed(kind, function):
    """One float32 number in 2,000 of those between -40 and 40."""
    from fairkit_onnx.structure.networks.layers import CURVED

    bits = np.arange(0, np.float32(40).view(np.int32), 2_003, dtype=np.int32).view(np.float32)
    x = np.concatenate([bits, -bits])
    served = runner(graph([onnx.helper.make_node(kind, ["x"], ["y"])], {}, 1))(x[:, None])[:, 0]
    assert np.abs(served - function(x.astype(float))).max() < CURVED / 3


def test_an_operator_that_is_not_read_is_named():
    rng = np.random.default_rng(0)
    node = onnx.helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Mul", ["a", "a"], ["y"], name="square")]
    with pytest.raises(ModelError, match="Mul 'square' of the network is not understood"):
        read(graph(nodes, {"w": rng.normal(size=(5, 1))}, 5), rng.normal(size=(5, 5)))


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
def test_witnesses_are_at_least_those_of_a_plain_coordinate_ascent(seed):
    """Six columns of 64 cells, 16-8 units: 60 random starts, each column at 17 cells, until nothing is gained."""
    from fairkit_all_inputs.bounds.networks.climbing import Climber

    rng, columns, size = np.random.default_rng(seed), 6, 64
    sizes = [size] * columns + [2]
    blocks = [block(f"c{i}", n, ordered=i < columns) for i, n in enumerate(sizes)]
    features = [*(np.array([i]) for i in range(columns)), np.arange(columns, columns + 2)]
    first = [*(np.linspace(-3, 3, size)[:, None] for _ in range(columns)), np.eye(2)]
    layout = Layout.of([*sizes[:-1], 1], [True] * (columns + 1))
    cells = CellFeatures(layout, columns, features, first, first, np.zeros(columns + 2))
    layers, before = [], columns + 2
    for width, kind in ((16, RELU), (8, RELU), (1, 0)):
        weights = rng.normal(size=(width, before)) / np.sqrt(before)
        layers.append(Layer(weights, rng.normal(size=width) * 0.5, np.abs(weights), 1e-7 * np.abs(weights),
                            np.full(width, 1e-7), np.full(width, kind, dtype=np.int8)))  # fmt: skip
        before = width
    asked = NetworkProblem(blocks=blocks, cells=cells, layers=layers, encode=lambda _: np.zeros(0), threshold=0.0)
    climber = Climber(asked, SCORE, (0, 1), {}, np.inf, None, -np.inf)
    points = rng.integers(0, layout.sizes, (60, columns + 1))
    top = np.zeros(points.shape, dtype=bool)
    worth = climber.worth(points, top)
    for _ in range(20):
        former = worth.copy()
        for column, cell in itertools.product(range(columns), range(0, size, 4)):
            moved = points.copy()
            moved[:, column] = cell
            other = climber.worth(moved, top)
            points[other > worth] = moved[other > worth]
            worth = np.maximum(worth, other)
        if (worth <= former).all():
            break
    climber.scatter(np.inf)
    assert climber.best >= 0.995 * worth.max()


@pytest.mark.parametrize("kind", [RELU, SIGMOID, TANH])
def test_the_gradient_is_that_of_finite_differences(kind):
    problem = made(3, kinds=(kind, kind))
    rng = np.random.default_rng(0)
    features = rng.normal(size=(5, problem.layers[0].weights.shape[1]))
    found = gradient(problem.layers, features)
    for place in range(features.shape[1]):
        step = np.zeros(features.shape[1])
        step[place] = 1e-6
        apart = output(problem.layers, features + step) - output(problem.layers, features - step)
        assert found[:, place] == pytest.approx(apart / 2e-6, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_along_the_gradient_never_lose_and_mostly_gain(kind):
    gained = 0
    for seed in range(4):
        problem = made(seed, widths=(12, 8), sizes=(40, 30, 6, 2))
        climber = Climber(problem, kind, problem.pairs[0], {}, np.inf, None, -np.inf)
        rng = np.random.default_rng(0)
        chosen = rng.integers(0, problem.layout.sizes, size=(20, 4))
        top = rng.random(chosen.shape) < 0.5
        moved, ends = climber.leap(chosen, top)
        assert (moved >= 0).all()
        assert (moved < problem.layout.sizes).all()
        before, after = climber.worth(chosen, top), climber.worth(moved, ends)
        assert (after >= before).all()
        gained += int((after > before + 1e-3).sum())
    assert gained > 40
