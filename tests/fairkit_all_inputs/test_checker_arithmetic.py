"""The arithmetic of the trees' checker and of its file reader, against slow twins, enumeration and onnxruntime."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from .test_all_inputs import CHANCE, FLIP, SCORE
from .test_checker import DOCS

helper = onnx.helper


@pytest.fixture(scope="module", autouse=True)
def _beside():
    sys.path.insert(0, str(DOCS))
    yield
    sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def check():
    import all_inputs_check

    return all_inputs_check


@pytest.fixture(scope="module")
def read():
    import all_inputs_read

    return all_inputs_read


def refused(read, words):
    return pytest.raises(read.RefusedError, match=words)


# the file reader


ARRAYS = {
    "float": np.array([[1.5, -2.0, 3e-40]], dtype=np.float32),
    "double": np.array([[1 / 3], [-1e300]]),
    "int64": np.array([[-5, 2**40], [0, -(2**62)]]),
    "uint8": np.array([0, 7, 255], dtype=np.uint8),
}


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("name", ARRAYS)
def test_a_tensor_is_read_as_onnx_reads_it(read, name, raw):
    array = ARRAYS[name]
    made = onnx.numpy_helper.from_array(array, name)
    if not raw:
        made = helper.make_tensor(name, made.data_type, array.shape, array.ravel().tolist())
    shape, values = read.tensor(made.SerializeToString())
    assert tuple(shape) == array.shape
    assert values == array.ravel().tolist()


def test_a_tensor_of_another_type_or_place_is_refused(read):
    other = onnx.numpy_helper.from_array(np.array([1], dtype=np.int32))
    with refused(read, "has the type 6"):
        read.tensor(other.SerializeToString())
    outside = onnx.numpy_helper.from_array(np.array([1.0], dtype=np.float32))
    outside.data_location = onnx.TensorProto.EXTERNAL
    with refused(read, "outside the model file"):
        read.tensor(outside.SerializeToString())
    outside.data_location = onnx.TensorProto.DEFAULT
    assert read.tensor(outside.SerializeToString()) == ([1], [1.0])
    empty = helper.make_tensor("", onnx.TensorProto.FLOAT, [0], [])
    assert read.tensor(empty.SerializeToString()) == ([0], [])


def test_attributes_of_every_kind_are_read(read):
    told = {
        "f": -0.5, "i": -7, "many": 300, "s": "text", "fs": [1.0, 2.5, -3.0], "is": [0, -1, 2**33], "ss": ["a", "bc"],
        "t": onnx.numpy_helper.from_array(np.array([2.0], dtype=np.float32)), "zero": 0, "none": "",
    }  # fmt: skip
    node = helper.make_node("Any", [], [], **told)
    found = read.attributes(read.fields(node.SerializeToString()))
    assert found.pop("t") == ([1], [2.0])
    assert found == {name: value for name, value in told.items() if name != "t"}


@pytest.mark.parametrize("value", [0, 1, 127, 128, 129, 300, 2**32, 2**63])
def test_a_varint_ends_where_it_ends(read, value):
    data = read._size(value)
    assert read.varint(b"\x80" + b"\x01" + data + b"\x05", 2) == (value, 2 + len(data))
    assert len(data) == max(1, math.ceil(value.bit_length() / 7))


def test_fields_of_every_wire_type_are_read(read):
    data = bytes([1 << 3, 5]) + bytes([2 << 3 | 2, 2]) + b"ab" + bytes([3 << 3 | 5]) + b"1234" + bytes([4 << 3 | 1])
    data += b"12345678" + bytes([1 << 3, 6])
    assert read.fields(data) == {1: [5, 6], 2: [b"ab"], 3: [b"1234"], 4: [b"12345678"]}
    with pytest.raises(KeyError):
        read.fields(bytes([3]))
    assert read.integers([(1 << 64) - 3, 4, read._size((1 << 64) - 1) + read._size(2)]) == [-3, 4, -1, 2]


def small_model(**changes):
    """A graph with a constant of each source, and an input."""
    value = onnx.numpy_helper.from_array(np.array([3.0], dtype=np.float32))
    nodes = [helper.make_node("Constant", [], ["three"], value=value), helper.make_node("Add", ["x", "three"], ["y"]),
             helper.make_node("Mul", ["y", "two"], ["z"]),
             helper.make_node("Constant", [], ["four"], value_float=4.0)]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, 1]) for name in "xz"]
    some = [onnx.numpy_helper.from_array(np.array([2.0], dtype=np.float32), "two"),
            onnx.numpy_helper.from_array(np.array(["a"], dtype=object), "text")]  # fmt: skip
    graph = helper.make_graph(nodes, "g" * changes.get("name", 1), ends[:1], ends[1:], some)
    opsets = [helper.make_opsetid("", 15)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, doc_string="d" * changes.get("doc", 0))


@pytest.mark.parametrize("sizes", [{}, {"name": 200}, {"name": 20_000, "doc": 300}])
def test_a_graph_is_read_and_shown_with_one_more_output(read, sizes):
    import onnxruntime

    data = small_model(**sizes).SerializeToString()
    graph = read.Graph(data)
    assert graph.sha256 == hashlib.sha256(data).hexdigest()
    assert graph.constants == {"three": ([1], [3.0]), "two": ([1], [2.0])}
    assert (graph.inputs, [kind for kind, *_ in graph.nodes]) == (["x"], ["Constant", "Add", "Mul", "Constant"])
    assert graph.nodes[1][1:3] == (["x", "three"], ["y"])
    shown = onnx.load_from_string(graph.showing("y"))
    assert [one.name for one in shown.graph.output] == ["z", "y"]
    shown.graph.output.pop()
    assert shown.SerializeToString() == data
    made = onnxruntime.InferenceSession(graph.showing("y")).run(["y"], {"x": np.array([[1.0]], dtype=np.float32)})
    assert made[0].tolist() == [[4.0]]


def finding(**changes):
    told = {"auditor": "all-inputs", "metric": FLIP, "parameters": {}, "interval": [0.0, 0.5]}
    return told | changes


def test_claims_are_those_of_the_whole_sum(read, tmp_path):
    file = tmp_path / "r.json"

    def claims(findings, wrap=False):
        told = {"model": {"sha256": "a"}, "findings": findings}
        if wrap:
            told = {"subject": [{"digest": {"sha256": "b"}}], "predicate": told}
            told = {"payload": base64.b64encode(json.dumps(told).encode()).decode()}
        file.write_text(json.dumps(told))
        return read.claims_of(file)

    some = [finding(), finding(metric=SCORE), finding(auditor="group"), finding(parameters={"class": "x"})]
    assert claims(some) == ("a", {FLIP: some[0], SCORE: some[1]})
    assert claims(some, wrap=True) == ("b", {FLIP: some[0], SCORE: some[1]})
    with refused(read, "two findings all_inputs_flip"):
        claims([finding(), finding()])
    for nothing in ([], [finding(auditor="group")], [finding(parameters={"class": "x"})]):
        with refused(read, "no finding"):
            claims(nothing)


def test_numbers_and_names_are_strict(read):
    assert read.strict('{"a": 1, "b": [2.5]}') == {"a": 1, "b": [2.5]}
    assert read.number("0x1.8p+1") == 3.0
    for text in ("inf", "nan", "-inf"):
        with refused(read, "finite"):
            read.number(text)
    for text, words in (('{"a":1,"a":1}', "twice"), ("[NaN]", "finite"), ("{", "no JSON"), ("[" * 200_000, "no JSON")):
        with refused(read, words):
            read.strict(text)


# trees on blocks of cells


SIZES = (3, 4, 2, 2)
CHANGING = 2


def random_tree(rng, depth):
    """Nodes of one tree: (block, cells that go to yes) or a leaf, and its children."""
    nodes = []

    def grow(level):
        place = len(nodes)
        nodes.append(None)
        if level == 0 or rng.random() < 0.1:
            nodes[place] = (-1, 0, -1, -1, float(rng.integers(-8, 9)) / 4)
            return place
        block = int(rng.integers(len(SIZES)))
        cells = int(rng.integers(1, (1 << SIZES[block]) - 1))
        nodes[place] = (block, cells, grow(level - 1), grow(level - 1), 0.0)
        return place

    grow(depth)
    return nodes


def problem(seed, trees=3, depth=3, **more):
    """Random trees in the form that the checker works with; the sum at each cell by enumeration."""
    rng = np.random.default_rng(seed)
    tests, yes, no, leaf, roots = [], [], [], [], []
    for _ in range(trees):
        start = len(tests)
        roots.append(start)
        for block, cells, one, two, value in random_tree(rng, depth):
            tests.append((block, cells))
            yes.append(one + start if one >= 0 else -1)
            no.append(two + start if two >= 0 else -1)
            leaf.append(value)
    base, threshold = float(rng.integers(-4, 5)) / 8, float(rng.integers(-4, 5)) / 8
    told = {"tests": tests, "yes": yes, "no": no, "leaf": leaf, "roots": roots, "sizes": list(SIZES),
            "changing": CHANGING, "base": base, "threshold": threshold, "rounding": 2.0**-20, **more}  # fmt: skip

    def value(root, cells):
        node = root
        while tests[node][0] >= 0:
            block, bits = tests[node]
            node = yes[node] if bits >> cells[block] & 1 else no[node]
        return leaf[node]

    sums = {cells: base + sum(value(root, cells) for root in roots)
            for cells in itertools.product(*map(range, SIZES))}  # fmt: skip
    values = {(root, cells): value(root, cells) for root in roots for cells in sums}
    return told, sums, values


def objective(question, f, g, threshold):
    if question == SCORE:
        return f - g
    if question == FLIP:
        return min(f - threshold, threshold - g, (f - g) / 2)
    return 1 / (1 + math.exp(-f)) - 1 / (1 + math.exp(-g))


def at(cells, cell):
    return tuple(cell if place == CHANGING else one for place, one in enumerate(cells))


def largest_of(told, sums, question, pair, inside=lambda cells: True):
    """Enumerate."""
    s, t = pair
    some = [cells for cells in sums if cells[CHANGING] == 0 and inside(cells)]
    return max(objective(question, sums[at(c, s)], sums[at(c, t)], told["threshold"]) for c in some)


def every_cell():
    """A log that splits all blocks into single cells: bits count from the first cell, sides of one cell at a time."""

    def rest(places):
        if not places:
            return [0]
        block, cell = places[0]
        after = rest(places[1:])
        if cell + 1 == SIZES[block]:  # the last cell is what is left
            return after
        here = rest([p for p in places if p[0] != block])
        return [[block, f"{1 << cell:x}"], *here, *after]

    return rest([(b, c) for b in range(len(SIZES)) if b != CHANGING for c in range(SIZES[b])])


STARTS = [0, 3, 7, 8, 10]


@pytest.mark.parametrize("seed", range(8))
def test_cells_split_to_the_end_prove_what_is_enumerated(check, seed):
    """Of single cells each bound is the number itself, but where no tree differs: no flip is there."""
    told, sums, values = problem(seed)
    for question in (SCORE, FLIP, CHANCE):
        log = {f"{s},{t}": every_cell() for s, t in ((0, 1), (1, 0))}
        found = check.proved(told, question, log)
        expected = -math.inf
        for pair in ((0, 1), (1, 0)):

            def moved(cells, pair=pair):
                return any(
                    values[root, at(cells, pair[0])] != values[root, at(cells, pair[1])] for root in told["roots"]
                )

            if question != FLIP or any(moved(cells) for cells in sums):
                inside = moved if question == FLIP else (lambda cells: True)
                expected = max(expected, largest_of(told, sums, question, pair, inside))
        assert found == pytest.approx(expected, abs=1e-12) or found == expected


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("merged", [False, True])
def test_a_box_is_bounded_from_above_and_by_trees_added_up_exactly(check, seed, merged):
    told, sums, _ = problem(seed)
    trees = check.trees_of(told, "0,1")
    every = [list(trees[0])], [list(trees[2])]
    groups = (
        {"first": every[0], "more": every[0], "less": every[0], "gap": every[1] if trees[2] else []} if merged else {}
    )
    boxes = np.ones((1, STARTS[-1]), dtype=bool)
    found = {q: float(check.bounds(told, q, trees, groups, boxes, STARTS)[0]) for q in (SCORE, FLIP, CHANCE)}
    reached = {q: largest_of(told, sums, q, (0, 1)) for q in found}
    f, g = ([sums[at(c, cell)] for c in sums] for cell in (0, 1))
    differ = [a - b for a, b in zip(f, g, strict=True)]
    found[CHANCE], reached[CHANCE] = (max(found[CHANCE], 0.0), max(reached[CHANCE], 0.0))  # below 0 nothing is claimed
    for question, most in found.items():
        assert most >= reached[question] - 1e-12 or (question == FLIP and not trees[2])
    if not merged or not trees[2]:
        return
    # all trees as one: each part is exact, and what is made of the parts is the formula
    gap, high, top, low = max(differ), max(f), max(g), min(g)
    assert found[SCORE] == pytest.approx(gap, abs=1e-12)
    assert found[FLIP] == pytest.approx(min(high - told["threshold"], told["threshold"] - low, gap / 2), abs=1e-12)
    best = max(1 / (1 + math.exp(-min(high, b + gap))) - 1 / (1 + math.exp(-b)) for b in np.linspace(low, top, 4_001))
    assert best - 1e-12 <= found[CHANCE] <= max(best, 0.0) + 1e-6


def test_where_no_tree_differs_nothing_flips(check):
    told = {"tests": [(0, 1), (-1, 0), (-1, 0)], "yes": [1, -1, -1], "no": [2, -1, -1], "leaf": [0.0, 1.0, -1.0],
            "roots": [0], "sizes": [2, 2], "changing": 1, "base": 0.0, "threshold": 0.0}  # fmt: skip
    log = {"0,1": [0], "1,0": [0]}
    assert check.proved(told, FLIP, log) == -math.inf
    assert check.proved(told, SCORE, log) == 0.0
    assert check.proved(told | {"changing": 0}, SCORE, log) == 2.0
    assert check.proved(told | {"changing": 0}, FLIP, log) == 1.0
    # a tree that differs by one sign only counts as one that differs
    one_sided = told | {"tests": [(1, 1), (-1, 0), (-1, 0)], "leaf": [0.0, 0.0, -1.0]}
    assert check.proved(one_sided, FLIP, log) == 0.0


def test_logs_cover_everything_and_nothing_else(check, read):
    told, *_ = problem(0)

    def boxes(log):
        return [some for _, some in check.boxes_of(told, log, STARTS)]

    (whole,) = boxes([0])
    assert whole.tolist() == [[True] * STARTS[-1]]
    (two,) = boxes([[1, 2], 0, 0])  # the first two cells of the block come first
    assert two[:, 3:7].tolist() == [[True, True, False, False], [False, False, True, True]]
    assert two[:, :3].all()
    assert two[:, 7:].all()
    (two,) = boxes([[1, "a"], 0, 0])
    assert two[:, 3:7].tolist() == [[False, True, False, True], [True, False, True, False]]
    assert [some[:, 3:7].tolist() for some in boxes([[1, "0a"], 0, 0])] == [two[:, 3:7].tolist()]
    assert len(boxes([[1, "10"], 0, 0])[0]) == 1  # 16 is no cell of the block: one side is empty
    for log, words in (([0, 0], "goes on"), ([[0, 1], 0], "open"), ([], "open"), ([[4, 1], 0, 0], "not there"),
                       ([[-1, 1], 0, 0], "not there"), ([{"gap": []}], "open")):  # fmt: skip
        with refused(read, words):
            boxes(log)
    groups = [groups for groups, _ in check.boxes_of(told, [[0, 1], {"gap": [[0, 1]]}, 0, 0], STARTS)]
    assert groups == [{}, {"gap": [[0, 1]]}]
    log = [{"gap": [[0, 1]]}, [0, 1], 0, 0]  # both sides of a split have what was added before it
    assert [(g, len(b)) for g, b in check.boxes_of(told, log, STARTS)] == [({"gap": [[0, 1]]}, 2)]


def test_empty_boxes_are_left_out(check):
    told, *_ = problem(0)
    (found,) = [some for _, some in check.boxes_of(told, [0], STARTS)]
    assert found.tolist() == [[True] * 10]
    log = [[0, 1], [0, 1], 0, 0, 0]  # below the first cell, and again: the other side is empty
    (found,) = [some for _, some in check.boxes_of(told, log, STARTS)]
    assert sorted(row[:3].tolist() for row in found) == [[False, True, True], [True, False, False]]


def test_a_log_is_about_every_pair(check, read):
    told, _, _ = problem(3)
    each = {"0,1": [0], "1,0": [0]}
    trees = {pair: check.trees_of(told, pair) for pair in each}
    box = np.ones((1, STARTS[-1]), dtype=bool)
    assert check.proved(told, SCORE, each) == max(
        check.bounds(told, SCORE, trees[pair], {}, box, STARTS)[0] for pair in each
    )
    for log in ({"0,1": [0]}, {"0,1": [0], "1,0": []}, each | {"1,1": [0]}):
        with refused(read, "every pair"):
            check.proved(told, SCORE, log)
    with refused(read, "no pairs"):
        check.proved(told | {"sizes": [3, 4, 1, 2]}, SCORE, {})


def test_trees_are_added_up_once(check, read):
    told, *_ = problem(1)
    one, _, _ = check.trees_of(told, "0,1")
    boxes = np.ones((1, STARTS[-1]), dtype=bool)
    for wrong in ([[0, 0]], [[0], [0]], [[7]]):
        with refused(read, "twice, or trees that are not there"):
            check.joined(one, wrong, boxes, STARTS)
    plain = check.largest(one.values(), boxes, STARTS)[0]
    assert check.joined(one, [], boxes, STARTS)[0] == plain
    assert check.joined(one, [[0], [1], [2]], boxes, STARTS)[0] == pytest.approx(plain)
    assert check.joined(one, [[0, 1]], boxes, STARTS)[0] <= plain + 1e-12
    least = check.joined(one, [[0, 1, 2]], boxes, STARTS, -1)[0]
    _, sums, _ = problem(1)
    assert told["base"] - least == pytest.approx(min(sums[c] for c in sums if c[CHANGING] == 0))


# nodes of trees


def tree_model(path, kind="TreeEnsembleRegressor", seed=0, trees=3, columns=1, double=False, **told):
    """Random trees over three features with leaves in some columns, as one node; the runtime's outputs."""
    rng = np.random.default_rng(seed)
    own = {key: [] for key in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
                               "missing_value_tracks_true")}  # fmt: skip
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    leaves = []
    for tree in range(trees):
        for node in range(7):
            leaf = node >= 3
            row = (tree, node, int(rng.integers(3)), "LEAF" if leaf else modes[int(rng.integers(len(modes)))],
                   float(rng.integers(0, 4)), 0 if leaf else 2 * node + 1, 0 if leaf else 2 * node + 2,
                   int(rng.integers(2)))  # fmt: skip
            for key, value in zip(own, row, strict=True):
                own[key].append(value)
            if leaf:
                leaves += [(tree, node, c, float(rng.integers(-8, 9)) / 8) for c in range(columns)]
    if told.pop("opposed", False):
        leaves = [(t, n, c, w if c else None) for t, n, c, w in leaves]
        leaves = [(t, n, c, -leaves[p + 1][3] if w is None else w) for p, (t, n, c, w) in enumerate(leaves)]
    part = "class" if kind.endswith("Classifier") else "target"
    keys = dict(
        zip((f"{part}_{k}" for k in ("treeids", "nodeids", "ids", "weights")), zip(*leaves, strict=True), strict=True)
    )
    if kind.endswith("Classifier"):
        keys["classlabels_int64s"] = [0, 1]
    else:
        keys["n_targets"] = columns
    node = helper.make_node(kind, ["x"], ["label", "y"] if part == "class" else ["y"], domain="ai.onnx.ml",
                            **{f"nodes_{key}": values for key, values in own.items()}, **keys, **told)  # fmt: skip
    ends = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 3]),
            helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, None])]  # fmt: skip
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    return path


ROWS = np.array([*itertools.product((0.0, 1.0, 1.5, 2.0, 3.0, np.nan), repeat=3)], dtype=np.float32)


def runtime(path, output="y"):
    import onnxruntime

    return onnxruntime.InferenceSession(path.read_bytes()).run([output], {"x": ROWS})[0].astype(float)


def walked(check, part, rows):
    """Each row's sum, node by node."""
    found = []
    for row in rows.tolist():
        total = 0.0
        for root in part["roots"]:
            node = root
            while part["yes"][node] >= 0:
                mode, feature, threshold, missing = part["tests"][node]
                value = row[feature]
                goes = bool(missing) if math.isnan(value) else bool(check.TESTS[mode](value, threshold))
                node = part["yes" if goes else "no"][node]
            total += part["value"][node]
        found.append(total + part["base"])
    return np.array(found)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"base_values": [0.75]},
        {"aggregate_function": "AVERAGE", "trees": 4},
        {"aggregate_function": "AVERAGE", "base_values": [-0.5]},
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_node_of_trees_is_the_sum_that_the_runtime_computes(check, read, tmp_path, told, seed):
    path = tree_model(tmp_path / "m.onnx", seed=seed, **told)
    model, matrix = check.model_of(read.Graph(path.read_bytes()), ["y"])
    trees = told.get("trees", 3)
    part = 1 / trees if told.get("aggregate_function") else 1.0
    assert matrix == "x"
    assert walked(check, model, ROWS) == pytest.approx(runtime(path)[:, 0], abs=1e-6)
    ((_, _, _, own),) = read.Graph(path.read_bytes()).nodes
    largest = [max(abs(w) for t, w in zip(own["target_treeids"], own["target_weights"], strict=True) if t == tree)
               for tree in range(trees)]  # fmt: skip
    terms = part * sum(largest) + abs(told.get("base_values", [0.0])[0])
    assert model["rounding"] == pytest.approx(1.01 * (trees + 4) * 2.0**-24 * terms, rel=1e-12)
    assert (len(model["roots"]), model["base"]) == (trees, told.get("base_values", [0.0])[0])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("opposed", [True, False])
def test_a_classifier_of_two_columns_is_its_last_one_and_says_how_uneven_they_are(check, read, tmp_path, seed, opposed):
    """Without a link the second column is the score; what the two add up to may move the decision."""
    path = tree_model(tmp_path / "m.onnx", "TreeEnsembleClassifier", seed, columns=2, opposed=opposed)
    graph = read.Graph(path.read_bytes())
    model, _ = check.model_of(graph, ["label"])
    assert walked(check, model, ROWS) == pytest.approx(runtime(path)[:, 1], abs=1e-6)
    own = graph.nodes[0][3]
    sums = {}
    for tree, node, weight in zip(own["class_treeids"], own["class_nodeids"], own["class_weights"], strict=True):
        sums.setdefault(tree, {}).setdefault(node, []).append(weight)
    totals = {tree: [sum(two) for two in nodes.values()] for tree, nodes in sums.items()}
    uneven = sum(max(some) - min(some) for some in totals.values())
    uneven += abs(sum(np.mean(some) for some in totals.values()) - 1)
    terms = sum(max(abs(two[1]) for two in nodes.values()) for nodes in sums.values())
    assert model["rounding"] == pytest.approx(1.01 * 7 * 2.0**-24 * terms + uneven, rel=1e-12)
    linked = tree_model(tmp_path / "l.onnx", "TreeEnsembleClassifier", seed, columns=2, opposed=opposed,
                        post_transform="LOGISTIC")  # fmt: skip
    again, _ = check.model_of(read.Graph(linked.read_bytes()), ["label"])
    even = 1.01 * 7 * 2.0**-24 * terms
    assert again["rounding"] == pytest.approx(even if opposed else even + uneven, rel=1e-12)


def test_nodes_that_are_no_sum_are_refused(check, read, tmp_path):
    for told, words in (
        ({"columns": 3}, "no sum"),
        ({"aggregate_function": "MAX"}, "no sum"),
        ({"columns": 2, "base_values": [0.0, 1.0]}, "base values"),
    ):
        path = tree_model(tmp_path / "m.onnx", **told)
        with refused(read, words):
            check.model_of(read.Graph(path.read_bytes()), ["y"])
    path = tree_model(tmp_path / "m.onnx", columns=2, base_values=[0.0, 0.0])
    assert check.model_of(read.Graph(path.read_bytes()), ["y"])[0]["base"] == 0.0
    for order in ([], ["z"], ["y", "z"]):
        with refused(read, "all trees"):
            check.model_of(read.Graph(path.read_bytes()), order)


def two_nodes(check, **changes):
    """A graph of two nodes of one leaf each, with whatever follows."""
    own = {"nodes_treeids": [0], "nodes_nodeids": [0], "nodes_modes": ["LEAF"], "nodes_truenodeids": [0],
           "nodes_falsenodeids": [0], "nodes_featureids": [0], "nodes_values": [0.0], "target_ids": [0],
           "target_treeids": [0], "target_nodeids": [0]}  # fmt: skip
    first, second = (own | {"target_weights": [w]} for w in (0.25, -0.75))
    nodes = [("TreeEnsembleRegressor", ["x"], ["a"], first | changes.get("first", {})),
             ("TreeEnsembleRegressor", [changes.get("matrix", "x")], ["b"], second)]  # fmt: skip
    after = changes.get("after", [("Sum", ["a", "b"], ["s"], {})])
    constants = {"half": ([1], [0.5]), "two": ([2], [1.0, 2.0]), "three": ([], [3.0])}
    return SimpleNamespace(nodes=[*nodes, *after], constants=constants, inputs=["x"])


def test_trees_are_added_up_with_constants(check, read):
    model, _ = check.model_of(two_nodes(check), ["a", "b"])
    assert (model["base"], model["value"], model["roots"]) == (0.0, [0.25, -0.75], [0, 1])
    assert check.model_of(two_nodes(check), ["b", "a"])[0]["value"] == [-0.75, 0.25]
    after = [
        ("Identity", ["a"], ["c"], {}),
        ("Add", ["half", "c"], ["d"], {}),
        ("Reshape", ["b", "two"], ["e"], {}),
        ("Add", ["d", "e"], ["f"], {}),
        ("Add", ["f", "three"], ["g"], {}),
        ("Sigmoid", ["g"], ["p"], {}),
    ]
    model, _ = check.model_of(two_nodes(check, after=after), ["a", "b"])
    assert model["base"] == 3.5
    assert model["rounding"] == pytest.approx(1.01 * 6 * 2.0**-24 * (0.25 + 0.75 + 3.5), rel=1e-12)
    for wrong in (
        [],
        [("Add", ["a", "two"], ["c"], {}), ("Add", ["c", "b"], ["d"], {})],
        [("Mul", ["a", "b"], ["c"], {})],
        [("Add", ["a", "unknown"], ["c"], {}), ("Add", ["c", "b"], ["d"], {})],
        [("Add", ["a", "a"], ["c"], {})],
    ):
        with refused(read, "not added up"):
            check.model_of(two_nodes(check, after=wrong), ["a", "b"])
    with refused(read, "several matrices"):
        check.model_of(two_nodes(check, matrix="z"), ["a", "b"])
    with refused(read, "links"):
        check.model_of(two_nodes(check, first={"post_transform": "LOGISTIC"}), ["a", "b"])
    with refused(read, "of another kind"):
        check.model_of(two_nodes(check, first={"nodes_modes": ["BRANCH_MEMBER"]}), ["a", "b"])


# cells and tests


def test_cells_go_one_way_or_are_refused(check, read):
    """Ends 0 to 1, 2 to 3, 4 alone and a missing value."""
    nan = math.nan
    ends = [[float(v).hex() for v in (0, 2, 4, nan)], [float(v).hex() for v in (1, 3, 4, nan)]]
    features = {"0": [1, *ends], "1": [-1, [(2.0).hex()], [(2.0).hex()]]}

    def goes(mode, threshold, missing=0, feature=0):
        ((block, cells),) = check.cells_of_tests({"tests": [(mode, feature, threshold, missing)]}, features)
        return block, cells

    for mode, threshold, cells in (
        ("BRANCH_LEQ", 1.0, 0b0001),
        ("BRANCH_LEQ", 1.5, 0b0001),
        ("BRANCH_LEQ", 3.0, 0b0011),
        ("BRANCH_LEQ", 4.0, 0b0111),
        ("BRANCH_LT", 2.0, 0b0001),
        ("BRANCH_LT", 4.0, 0b0011),
        ("BRANCH_GT", 1.0, 0b0110),
        ("BRANCH_GT", 4.0, 0),
        ("BRANCH_GTE", 2.0, 0b0110),
        ("BRANCH_GTE", 4.0, 0b0100),
        ("BRANCH_EQ", 4.0, 0b0100),
        ("BRANCH_EQ", 1.5, 0),
        ("BRANCH_NEQ", 4.0, 0b1011),
        ("EQ_WHOLE", 4.0, 0b0100),
    ):
        assert goes(mode, threshold, 1 if mode == "BRANCH_NEQ" else 0) == (1, cells), (mode, threshold)
        assert goes(mode, threshold, 1) == (1, cells | 0b1000)
    for mode, threshold in (
        ("BRANCH_LEQ", 0.0),
        ("BRANCH_LEQ", 2.5),
        ("BRANCH_LT", 1.0),
        ("BRANCH_LT", 3.0),
        ("BRANCH_GT", 2.0),
        ("BRANCH_GTE", 3.0),
        ("BRANCH_EQ", 0.0),
        ("BRANCH_EQ", 1.0),
        ("BRANCH_NEQ", 2.5),
        ("EQ_WHOLE", 2.0),
    ):
        with refused(read, "on both sides"):
            goes(mode, threshold)
    assert goes("BRANCH_LEQ", 2.0, feature=1) == (0, -1)
    assert goes("BRANCH_LT", 2.0, feature=1) == (0, 0)
    assert check.cells_of_tests({"tests": [("LEAF", 0, 0.0, 0)]}, features) == [(-1, 0)]
    wide = {"0": [0, [(2.25).hex()], [(2.75).hex()]]}
    assert check.cells_of_tests({"tests": [("EQ_WHOLE", 0, 2.0, 0)]}, wide) == [(0, 1)]
    half = {"0": [0, [math.nan.hex()], [(1.0).hex()]]}
    with refused(read, "on both sides"):
        check.cells_of_tests({"tests": [("BRANCH_LEQ", 0, 2.0, 0)]}, half)


def test_cells_of_a_column_begin_after_the_last_one(check, read):
    block = {"low": (1.0).hex(), "ends": [(2.0).hex(), (5.0).hex(), math.nan.hex()], "whole": True, "single": False}
    found = check.intervals(block)
    assert found[:2] == [(1.0, 2.0), (3.0, 5.0)]
    assert np.isnan(found[2]).all()
    assert len(found) == 3
    single, double = (check.intervals(block | {"whole": False, "single": one}) for one in (True, False))
    assert single[1] == (float(np.nextafter(np.float32(2), np.float32(9))), 5.0)
    assert double[1] == (math.nextafter(2.0, 9.0), 5.0)
    for ends in ([0.5], [2.0, 2.0], [2.0, 1.0]):
        with refused(read, "empty"):
            check.intervals(block | {"ends": [one.hex() for one in ends]})
    assert check.intervals(block | {"ends": [(1.0).hex()]}) == [(1.0, 1.0)]


def encoded(check, read, **changes):
    """Two columns that a model reads as they are."""
    domain = [
        {
            "name": "n",
            "columns": ["n"],
            "low": (0.0).hex(),
            "ends": [(1.0).hex(), (3.0).hex()],
            "whole": True,
            "single": False,
        },
        {
            "name": "m",
            "columns": ["m"],
            "low": (0.25).hex(),
            "ends": [(0.5).hex(), (0.75).hex()],
            "whole": False,
            "single": True,
        },
        {"name": "s", "columns": ["s"], "members": [[["0"], 0], [["1"], 1]], "choices": [[0.0], [1.0]]},
    ]
    next_single = float(np.nextafter(np.float32(0.5), np.float32(1)))
    hexed = lambda values: [float(v).hex() for v in values]  # noqa: E731 -- short
    features = {"0": [0, hexed([0, 2]), hexed([1, 3])], "1": [1, hexed([0.25, next_single]), hexed([0.5, 0.75])],
                "2": [2, hexed([0, 1]), hexed([0, 1])], "3": [-1, hexed([0]), hexed([1])]}  # fmt: skip
    inputs = [["x", changes.get("kind", "tensor(float)"), ["n", "m", "s", "s"]]]
    told = {"domain": domain, "features": features | changes.get("features", {}), "inputs": inputs}
    graph = SimpleNamespace(inputs=["x"])
    check.run_encoders(told, graph, "x")


def test_what_encoders_make_is_run_again(check, read):
    encoded(check, read)
    encoded(check, read, kind="tensor(double)")
    hexed = lambda values: [float(v).hex() for v in values]  # noqa: E731 -- short
    for feature in (
        [0, hexed([0, 2]), hexed([0, 3])],
        [0, hexed([0.5, 2]), hexed([1, 3])],
        [0, hexed([0, 2]), hexed([1, 2.5])],
        [0, hexed([0, math.nan]), hexed([1, math.nan])],
        [0, hexed([2, 0]), hexed([3, 1])],
        [-1, hexed([0]), hexed([2])],
        [2, hexed([0, 0]), hexed([0, 0])],
        [2, hexed([0, 0]), hexed([1, 1])],
    ):  # the last two are of another block, whose values do not move it
        with refused(read, "encoders make"):
            encoded(check, read, features={"0": feature})
    with refused(read, "encoders make"):  # random values inside a cell are seen, too
        encoded(check, read, features={"1": [1, hexed([0.25, 0.5]), hexed([0.25, 0.75])]})


# claims


def told_of(**changes):
    return {"problem_sha256": "p", "logs": {FLIP: {"0,1": [0]}, SCORE: {"0,1": [0]}, CHANCE: {"0,1": [0]}},
            "rounding": 0.25, "domain": [{"name": "x"}], **changes}  # fmt: skip


def held(check, monkeypatch, question, bound, high, proved=None, low=0.0, told=None, **changes):
    monkeypatch.setattr(check, "proved", lambda *_: bound)
    evidence = {"problem_sha256": "p", "proved": bound if proved is None else proved, "version": 3, "rounding": 0.25,
                "domain": {"x": "0 to 1"}} | changes.pop("evidence", {})  # fmt: skip
    claim = finding(metric=question, interval=[low, high], evidence=evidence) | changes
    return check.holds(told or told_of(), question, claim)


def test_an_upper_end_follows_from_the_bound_and_rounding(check, read, monkeypatch):
    def good(*arguments, **told):
        return held(check, monkeypatch, *arguments, **told)[0]

    assert good(SCORE, 1.0, 1.5)
    assert good(SCORE, -3.0, 0.5)
    assert not good(SCORE, 1.0, 1.49)
    assert not good(SCORE, -3.0, 0.49)
    assert good(SCORE, 1.0, 1.5 - 1e-10)
    assert not good(SCORE, 1.0, 1.5 - 1e-8)
    assert good(SCORE, 1e6, 1e6 + 0.5 - 1e-4)
    assert not good(SCORE, 1e6, 1e6 + 0.5 - 1e-2)
    assert good(CHANCE, 0.5, 0.625 + 1e-6)
    assert not good(CHANCE, 0.5, 0.625)
    for question in (CHANCE, SCORE):
        with refused(read, "its bound is no number"):
            good(question, -math.inf, 0.9)
    assert good(FLIP, -0.25, 0.0)
    assert good(FLIP, -math.inf, 0.0)
    assert not good(FLIP, -0.24, 0.0)
    assert good(FLIP, -0.25 + 1e-10, 0.0)
    assert not good(FLIP, -0.25 + 1e-8, 0.0)
    assert not good(FLIP, 2.0, 0.5)
    # what the report says was proved must be, too
    assert good(SCORE, 1.0, 9.0, proved=1.0 - 1e-10)
    assert not good(SCORE, 1.0, 9.0, proved=1.0 - 1e-8)
    assert good(SCORE, 1.0, 9.0, proved=2.0)
    assert held(check, monkeypatch, SCORE, 1.0, 1.5)[1] == 1.0


def test_what_claims_nothing_needs_no_proof_and_what_is_no_interval_is_refused(check, read, monkeypatch):
    assert held(check, monkeypatch, FLIP, 5.0, 1.0) is None
    assert held(check, monkeypatch, CHANCE, 5.0, 1.0) is None
    assert held(check, monkeypatch, CHANCE, 5.0, 1.5) is None
    assert held(check, monkeypatch, SCORE, 5.0, 1.0) == (False, 5.0)
    assert held(check, monkeypatch, CHANCE, 5.0, 0.99) == (False, 5.0)
    assert held(check, monkeypatch, SCORE, 0.0, 0.5, low=0.5)[0]
    for low, high in ((0.6, 0.5), (math.nan, 0.5), (0.0, math.inf), (-math.inf, 0.5), (0.0, math.nan)):
        with refused(read, "the interval is none"):
            held(check, monkeypatch, SCORE, 0.0, high, low=low)
    with refused(read, "another proof"):
        held(check, monkeypatch, SCORE, 0.0, 0.5, told=told_of(problem_sha256="q"))
    with refused(read, "near people"):
        held(check, monkeypatch, SCORE, 0.0, 0.5, parameters={"near": 0.1})
    for wrong in ({"more": 1}, {"version": 2}, {"rounding": 0.2}, {"domain": {"y": ""}}):
        with refused(read, "the evidence lacks|of another proof|about another domain"):
            held(check, monkeypatch, SCORE, 0.0, 0.5, evidence=wrong)
    assert held(check, monkeypatch, SCORE, 0.0, 0.5, evidence={"narrowed": "x"}) is None
    for logs in ({}, {SCORE: {}}, {FLIP: {"0,1": [0]}}):
        with refused(read, "no log"):
            held(check, monkeypatch, SCORE, 0.0, 0.5, told=told_of(logs=logs))


def test_the_words_of_an_outcome(check, read, monkeypatch, tmp_path, capsys):
    """Every question is answered on a line; one that is refuted, or nothing that is claimed, is an error."""
    graph = SimpleNamespace(sha256="m")
    monkeypatch.setattr(check, "Graph", lambda data: graph)
    monkeypatch.setattr(check, "problem_of", lambda told, graph: told)
    (tmp_path / "m.onnx").write_bytes(b"")

    def run(outcomes, digest="m", schema="fairkit.all-inputs/3"):
        monkeypatch.setattr(check, "holds", lambda told, question, claim: outcomes[question])
        told = dict.fromkeys(check.FIELDS) | {"schema": schema, "domain": []}
        (tmp_path / "p.json").write_text(json.dumps(told))
        report = {"model": {"sha256": digest}, "findings": [finding(metric=name) for name in outcomes]}
        (tmp_path / "r.json").write_text(json.dumps(report))
        code = check.main(tmp_path / "p.json", tmp_path / "m.onnx", tmp_path / "r.json")
        return code, capsys.readouterr().out

    code, said = run({FLIP: (True, -1.0), SCORE: (True, 0.25), CHANCE: None})
    assert (code, said.count("holds"), said.count("nothing to prove")) == (0, 2, 1)
    assert "all_inputs_score_change: at most 0.5, proved 0.25: holds" in said
    for outcomes in ({FLIP: (False, 1.0), SCORE: (True, 0.25)}, {FLIP: (True, -1.0), SCORE: (False, 0.25)}):
        code, said = run(outcomes)
        assert (code, said.count("holds"), said.count("REFUTED")) == (1, 1, 1)
    code, said = run({FLIP: None})
    assert (code, "claims nothing" in said) == (1, True)
    assert "another model file" in run({FLIP: (True, 0.0)}, digest="n")[1]
    code, said = run({FLIP: (True, 0.0)}, schema="fairkit.all-inputs/1")
    assert (code, "another version" in said) == (1, True)
