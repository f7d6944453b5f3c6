"""Check a proof of `fairkit audit --auditor all-inputs --set all-inputs.save_proof=proof.json` without fairkit.

    python all_inputs_check.py proof.json model.onnx report.json

The report is what `fairkit audit --format json` printed, or a certificate (whose signature `fairkit verify` checks). The trees are
read from the ONNX file; from the proof come the domain, what the file's encoders make of each cell (run anew with onnxruntime, at
each cell's ends and inside), and the log. Nothing is searched: for each pair of values the boxes of the log, which cover every
input, are rebuilt, and each is bounded anew. It exits with 1 where anything is not as the report says. It needs numpy, the
file all_inputs_read.py beside it, and onnxruntime where the model has encoders.
"""

import hashlib
import itertools
import json
import math
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))  # also where Python's safe path leaves it out

from all_inputs_read import Graph, RefusedError, claims_of, number, refuse, strict

FIELDS = {"schema", "model_sha256", "problem_sha256", "trees", "inputs", "changing", "domain", "features", "direction", "base",
          "threshold", "rounding", "logs"}  # fmt: skip
NUMBERS, LISTED = {"name", "columns", "low", "ends", "whole", "single"}, {"name", "columns", "members", "choices"}
EVIDENCE = {"version", "decided", "boxes", "rounding", "witness", "proved", "problem_sha256", "proof", "domain"}
FLIP, SCORE, CHANCE = "all_inputs_flip", "all_inputs_score_change", "all_inputs_probability_change"
TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")
TESTS = {
    "BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less, "BRANCH_GTE": np.greater_equal, "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal, "BRANCH_NEQ": np.not_equal,
    "EQ_WHOLE": lambda values, threshold: np.trunc(values) == threshold,
}  # fmt: skip
MEMBER = 6  # the mode of ai.onnx.ml 5 that asks for a set; the ones before it are those of TESTS, in order


def written(told):
    """A node TreeEnsemble of ai.onnx.ml 5 as one of TreeEnsembleRegressor: a set is a chain of equalities.

    onnxruntime compares the whole parts alone where a set has another number than 0 to 30.
    """
    modes, sets = told["nodes_modes"][1], [[]]
    for value in told.get("membership_values", (0, []))[1]:
        sets.append([]) if math.isnan(value) else sets[-1].append(value)
    sets = iter(sets if sets[-1] else sets[:-1])
    members = {node: next(sets) for node, mode in enumerate(modes) if mode == MEMBER}
    refuse(max(modes, default=0) > MEMBER or list(sets) or not all(members.values()), "the sets are damaged")
    missing = told.get("nodes_missing_value_tracks_true") or [0] * len(modes)
    rows, leaves = [], []  # of all trees: tree, number, mode, feature, threshold, missing, yes, no
    for tree, root in enumerate(told["tree_roots"]):
        first, seen, waiting = len(rows), {}, [(root, 0, None, 6)]
        while waiting:
            node, leaf, parent, side = waiting.pop()
            if (node, leaf) not in seen:
                seen[node, leaf] = len(rows) - first
                if leaf:
                    leaves.append(
                        (tree, len(rows) - first, told["leaf_targetids"][node], told["leaf_weights"][1][node])
                    )
                    rows.append([tree, len(rows) - first, "LEAF", 0, 0.0, 0, 0, 0])
                else:
                    tests = [(list(TESTS)[modes[node] if modes[node] < MEMBER else 0], told["nodes_splits"][1][node])]
                    if node in members:
                        small = all(0 <= value <= 30 for value in members[node])
                        tests = [("BRANCH_EQ" if small else "EQ_WHOLE", value) for value in members[node]]
                    for place, (mode, value) in enumerate(tests):
                        number = len(rows) - first
                        waiting.append((told["nodes_truenodeids"][node], told["nodes_trueleafs"][node], len(rows), 6))
                        rows.append([tree, number, mode, told["nodes_featureids"][node], value, missing[node], 0,
                                     number + 1 if place + 1 < len(tests) else 0])  # fmt: skip
                    waiting.append((told["nodes_falsenodeids"][node], told["nodes_falseleafs"][node], len(rows) - 1, 7))
                refuse(len(rows) > 1_000_000, "the trees are too large, or a circle")
            if parent is not None:
                rows[parent][side] = seen[node, leaf]
    names = ("nodes_treeids", "nodes_nodeids", "nodes_modes", "nodes_featureids", "nodes_values",
             "nodes_missing_value_tracks_true", "nodes_truenodeids", "nodes_falsenodeids")  # fmt: skip
    found = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    parts = ("target_treeids", "target_nodeids", "target_ids", "target_weights")
    aggregate = ("AVERAGE", "SUM", "MIN", "MAX")[told.get("aggregate_function", 1)]
    refuse(told.get("post_transform", 0), "the trees have a link that the runtime leaves out")
    return (
        found | dict(zip(parts, map(list, zip(*leaves, strict=True)), strict=True)) | {"aggregate_function": aggregate}
    )


def ensemble(kind, told):
    """One node of trees: its tests, the children, the leaves' values, the roots, the base, and what rounding may do."""
    pairs = list(zip(told["nodes_treeids"], told["nodes_nodeids"], strict=True))
    places, trees = {pair: place for place, pair in enumerate(pairs)}, len(set(told["nodes_treeids"]))
    part = "class" if kind == TREES[0] else "target"
    modes = told["nodes_modes"]
    refuse(set(modes) - {"LEAF", *TESTS}, "a tree has a test of another kind")
    yes, no = (
        [places[tree, child] if mode != "LEAF" else -1
         for (tree, _), child, mode in zip(pairs, told[key], modes, strict=True)]
        for key in ("nodes_truenodeids", "nodes_falsenodeids")
    )  # fmt: skip
    ids, weights = (told[f"{part}_ids"], told.get(f"{part}_weights_as_tensor", (0, told.get(f"{part}_weights")))[1])
    at = [places[pair] for pair in zip(told[f"{part}_treeids"], told[f"{part}_nodeids"], strict=True)]
    columns, average = sorted(set(ids)), told.get("aggregate_function", "SUM") == "AVERAGE"
    values = np.zeros((len(columns), len(pairs)))
    for place, column, weight in zip(at, ids, weights, strict=True):
        values[columns.index(column), place] += weight
    bases = told.get("base_values_as_tensor", (0, told.get("base_values", [])))[1]
    uneven, base = 0.0, 0.0
    refuse(len(columns) > 2 or told.get("aggregate_function", "SUM") not in ("SUM", "AVERAGE"), "the trees are no sum")
    if len(columns) == 1:
        base = float(bases[0 if len(bases) == 1 else columns[0]]) if bases else 0.0
    else:
        refuse(any(bases), "the trees have two columns and base values")
        total = values.sum(axis=0)
        if told.get("post_transform") != "LOGISTIC" or total.any():
            leaves = {}
            for place in set(at):
                leaves.setdefault(pairs[place][0], []).append(total[place])
            uneven = sum(max(some) - min(some) for some in leaves.values())
            uneven += abs(sum(np.mean(some) for some in leaves.values()) - (trees if average else 1)) * 1.0
    value, uneven = values[-1] / (trees if average else 1), uneven / (trees if average else 1)
    value = np.where([mode == "LEAF" for mode in modes], value, 0.0)
    largest = {}
    for (tree, _), one in zip(pairs, value.tolist(), strict=True):
        largest[tree] = max(largest.get(tree, 0.0), abs(one))
    led = {*yes, *no}
    roots = list(dict.fromkeys(place for place in range(len(pairs)) if place not in led))
    thresholds = told.get("nodes_values_as_tensor", (0, told.get("nodes_values")))[1]
    missing = told.get("nodes_missing_value_tracks_true") or [0] * len(pairs)
    tests = list(zip(modes, told["nodes_featureids"], thresholds, missing, strict=True))
    return {"tests": tests, "yes": yes, "no": no, "value": value.tolist(), "roots": roots, "base": base,
            "uneven": uneven, "terms": sum(largest.values()) + abs(base)}  # fmt: skip


def model_of(graph, order):
    """All trees of a file, as one sum: the nodes in the order of the proof, and constants that are added to them."""
    nodes = {outputs[0]: (kind, inputs, own) for kind, inputs, outputs, own in graph.nodes if kind in TREES}
    refuse(sorted(nodes) != sorted(order), "the proof is not about all trees of the model")
    refuse(len({inputs[0] for _, inputs, _ in nodes.values()}) != 1, "the trees read several matrices")
    nodes = {
        name: (kind, inputs, written(own) if kind == TREES[2] else own) for name, (kind, inputs, own) in nodes.items()
    }
    parts = {name: ensemble(kind, own) for name, (kind, _, own) in nodes.items()}
    found = {key: [] for key in ("tests", "yes", "no", "value", "roots")}
    for name in order:
        start, part = len(found["tests"]), parts[name]
        for key, some in found.items():
            moved = key in ("yes", "no", "roots")
            some += [one + start if moved and one >= 0 else one for one in part[key]]
    links = {own.get("post_transform", "NONE") for _, _, own in nodes.values()}
    classifier = nodes[order[0]][0] == TREES[0]
    refuse(len(order) > 1 and (classifier or links != {"NONE"}), "the trees have links before they are added up")
    offset = 0.0 if classifier or links != {"NONE"} else offset_of(graph, order)
    found["base"] = sum(part["base"] for part in parts.values()) + offset
    terms = sum(part["terms"] for part in parts.values()) + abs(offset)
    uneven = sum(part["uneven"] for part in parts.values())
    found["rounding"] = 1.01 * (len(found["roots"]) + 4) * 2.0**-24 * terms + uneven
    return found, next(iter(nodes.values()))[1][0]


def offset_of(graph, order):
    """What is added to the trees' outputs until all of them are one number."""
    owned, offset = {name: [name] for name in order}, dict.fromkeys(order, 0.0)
    last = order[0]
    for kind, inputs, outputs, _ in graph.nodes:
        summed = [name for name in inputs if name in owned]
        keeps = kind in ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
        if not summed or (kind not in ("Add", "Sum") and not keeps):
            continue
        others = [] if keeps else [graph.constants.get(name) for name in inputs if name and name not in owned]
        if any(one is None or len(one[1]) != 1 for one in others):
            continue
        owned[outputs[0]] = [one for name in summed for one in owned[name]]
        offset[outputs[0]] = sum(offset[name] for name in summed) + sum(one[1][0] for one in others)
        if sorted(owned[outputs[0]]) == sorted(order):
            last = outputs[0]
    refuse(sorted(owned[last]) != sorted(order), "the trees are not added up to one number")
    return offset[last]


def cells_of_tests(model, features):
    """By node its block and the cells that go to `yes`; each cell's features lie between two ends that go alike."""
    found = []
    for mode, feature, threshold, missing in model["tests"]:
        if mode == "LEAF":
            found.append((-1, 0))
            continue
        block, *ends = features[str(feature)]
        low, high = (np.array([float.fromhex(text) for text in some]) for some in ends)
        needs = {"BRANCH_LEQ": [np.less_equal], "BRANCH_GT": [np.less_equal], "BRANCH_LT": [np.less],
                 "BRANCH_GTE": [np.less]}.get(mode, [np.less, np.less_equal])  # fmt: skip
        ends = [np.trunc(end) if mode == "EQ_WHOLE" else end for end in (low, high)]
        sides = [[one(end, threshold) for one in needs] for end in ends]
        known = ~np.isnan(low)
        refuse((np.isnan(low) != np.isnan(high)).any() or (np.array(sides[0]) != np.array(sides[1]))[:, known].any(),
               f"a cell of feature {feature} has values on both sides of the test {threshold}")  # fmt: skip
        goes = TESTS[mode](low, threshold) | (np.isnan(low) & bool(missing))
        if block < 0:
            found.append((0, -1 if goes[0] else 0))
        else:
            found.append((block, sum(1 << int(cell) for cell in np.flatnonzero(goes))))
    return found


def digest_of(told, model, sizes, tests):
    """The digest that the report has of all that a proof is about."""
    about = {
        "sizes": sizes,
        "changing": told["changing"],
        "tests": [[b, f"{cells & ((1 << sizes[b]) - 1):x}" if b >= 0 else ""] for b, cells in tests],
        "yes": model["yes"],
        "no": model["no"],
        "value": [(told["direction"] * value).hex() for value in model["value"]],
        "roots": model["roots"],
        "numbers": [told["base"], told["rounding"], told["threshold"]],
        "domain": told["domain"],
        "inputs": told["inputs"],
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def inputs_of(told, rng):
    """Raw values by block with their cells: of one block both ends of each cell, some inside, every listed value; then any."""
    options = []
    for block in told["domain"]:
        if "ends" not in block:
            cells = [cell for _, cell in block["members"]]
            options.append(list(zip(cells, block["choices"], strict=True)))
            continue
        some = []
        for cell, (low, high) in enumerate(intervals(block)):
            values = [low, high, *rng.uniform(low, high, 3).tolist()] if low < high else [low]
            some += [(cell, [value]) for value in values if not block["whole"] or value == int(value)]
        options.append(some)
    base = [some[0] for some in options]
    rows = [[*base[:place], one, *base[place + 1 :]] for place, some in enumerate(options) for one in some]
    return rows + [[some[rng.integers(len(some))] for some in options] for _ in range(300)]


def run_encoders(told, graph, matrix):
    """Run the file's own encoders: each feature is what the proof says of its block's cell, whatever the other blocks are."""
    rows = inputs_of(told, np.random.default_rng(0))
    columns = {
        name: [row[place][1][column] for row in rows]
        for place, block in enumerate(told["domain"])
        for column, name in enumerate(block["columns"])
    }
    if matrix in graph.inputs:
        names = next(names for name, _, names in told["inputs"] if name == matrix)
        kind = next(kind for name, kind, _ in told["inputs"] if name == matrix)
        made = np.array([columns[name] for name in names], dtype=float).T
        made = made if kind == "tensor(double)" else made.astype(np.float32).astype(float)
    else:
        import onnxruntime

        kinds = {"tensor(float)": np.float32, "tensor(double)": float, "tensor(int64)": np.int64, "tensor(string)": object,
                 "tensor(int32)": np.int32, "tensor(bool)": bool, "tensor(float16)": np.float16}  # fmt: skip
        feeds = {
            name: np.array([columns[c] for c in names], dtype=kinds[kind]).T for name, kind, names in told["inputs"]
        }
        made = onnxruntime.InferenceSession(graph.showing(matrix)).run([matrix], feeds)[0]
        made = np.asarray(made, dtype=float).reshape(len(rows), -1)
    for feature, (block, *ends) in told["features"].items():
        low, high = (np.array([float.fromhex(text) for text in some]) for some in ends)
        for row, value in zip(rows, made[:, int(feature)].tolist(), strict=True):
            at = row[block][0] if block >= 0 else 0
            inside = low[at] <= value <= high[at] or (math.isnan(value) and math.isnan(low[at]))
            refuse(not inside, f"the model's encoders make {value} of a cell of feature {feature}, and the proof says "
                   f"{low[at]} to {high[at]}")  # fmt: skip


def intervals(block):
    """The smallest and the largest number of each cell; NaN for a missing one."""
    low, found = float.fromhex(block["low"]), []
    for text in block["ends"]:
        high = float.fromhex(text)
        if math.isnan(high):
            found.append((high, high))
            continue
        refuse(not low <= high, "a cell of the domain is empty")
        found.append((low, high))
        low = high + 1 if block["whole"] else float(np.nextafter(np.float32(high), np.float32(np.inf))) if block[
            "single"] else float(np.nextafter(high, np.inf))  # fmt: skip
    return found


def leaves(told, node, cell, box):
    """Every leaf that can be reached with the changing block at a cell: its value, and the cells of each block it needs."""
    block, cells = told["tests"][node]
    if block < 0:
        return [(told["leaf"][node], box)]
    found, changing = [], block == told["changing"]
    for child, side in ((told["yes"][node], cells), (told["no"][node], ~cells)):
        left = side >> cell & 1 if changing else box.get(block, (1 << told["sizes"][block]) - 1) & side
        found += leaves(told, child, cell, box if changing else {**box, block: left}) if left else []
    return found


def largest(trees, boxes, starts, sign=1):
    """The sum over trees of the largest `sign` times value, among (value, cells by block), that each box reaches."""
    total = np.zeros(len(boxes))
    for tree in trees:
        best = np.full(len(boxes), -np.inf)
        for value, needs in sorted(((sign * v, n) for v, n in tree), key=lambda part: -part[0]):
            rows = np.flatnonzero(best == -np.inf)
            for block, cells in needs.items():
                places = [starts[block] + c for c in range(cells.bit_length()) if cells >> c & 1]
                rows = rows[boxes[np.ix_(rows, places)].any(axis=1)]
            best[rows] = value
        refuse((best == -np.inf).any(), "a box reaches no leaf of a tree")
        total += best
    return total


def boxes_of(told, log, starts):
    """The closed boxes of a log that hold an input, by the trees to add up: sides of a split cover all of it."""
    waiting, found = [(np.ones(starts[-1], dtype=bool), 0)], [({}, [])]
    for entry in log:
        refuse(not waiting, "the log goes on after its last box")
        box, mine = waiting.pop()
        if isinstance(entry, dict):
            waiting.append((box, len(found)))
            found.append((entry, []))
        elif entry == 0:
            found[mine][1].append(box)
        else:
            block, cells = entry[0], int(entry[1], 16) if isinstance(entry[1], str) else (1 << entry[1]) - 1
            refuse(not 0 <= block < len(told["sizes"]), "the log splits a block that is not there")
            side = np.array([bool(cells >> c & 1) for c in range(starts[block + 1] - starts[block])])
            for half in (~side, side):
                waiting.append((box.copy(), mine))
                waiting[-1][0][starts[block] : starts[block + 1]] &= half
    refuse(waiting, "the log leaves boxes open")
    for groups, some in found:
        boxes = np.array(some).reshape(-1, starts[-1])
        full = np.all([boxes[:, a:b].any(axis=1) for a, b in itertools.pairwise(starts)], axis=0)
        if full.any():
            yield groups, boxes[full]


def joined(trees, groups, boxes, starts, sign=1):
    """The trees (by place in the roots), those of each group as one: the sums at leaves that have an input in common."""
    together = [place for group in groups for place in group]
    refuse(len(set(together)) < len(together) or not {*together} <= {*trees},
           "the log adds up trees twice, or trees that are not there")  # fmt: skip
    bits = [sum(1 << c for c in np.flatnonzero(some).tolist()) for some in np.split(boxes.any(axis=0), starts[1:-1])]
    found = [tree for place, tree in trees.items() if place not in together]
    for group in groups:
        sums = [(0.0, {})]
        for place in group:
            cut = [(v, {b: m & bits[b] for b, m in needs.items()}) for v, needs in trees[place]]
            both = itertools.product(sums, [part for part in cut if all(part[1].values())])
            sums = [(v + w, {b: m.get(b, -1) & n.get(b, -1) for b in m | n}) for (v, m), (w, n) in both]
            sums = [part for part in sums if all(part[1].values())]
        found.append(sums)
    return largest(found, boxes, starts, sign)


def bounds(told, question, trees, groups, boxes, starts):
    """An upper bound of the question's objective in each box, with some trees added up."""
    one, two, differences = trees
    gap = joined(differences, groups.get("gap", []), boxes, starts)
    if question == SCORE:
        return gap
    high = told["base"] + joined(one, groups.get("first", []), boxes, starts)
    top = told["base"] + joined(two, groups.get("more", []), boxes, starts)
    low = told["base"] - joined(two, groups.get("less", []), boxes, starts, -1)
    if question == FLIP:
        found = np.minimum(np.minimum(high - told["threshold"], told["threshold"] - low), gap / 2)
        each = differences.values()
        moving = sum(
            (np.abs(largest([d], boxes, starts, sign)) for d in each for sign in (1, -1)), np.zeros(len(boxes))
        )
        return np.where(moving == 0, -np.inf, found)  # no tree differs: both sums are rounded alike
    g = np.maximum(low, np.minimum(np.minimum(-gap / 2, top), high - gap))
    return 1 / (1 + np.exp(-np.minimum(high, g + gap))) - 1 / (1 + np.exp(-g))


def trees_of(told, pair):
    """The leaves of each tree at both values of a pair, and of the differences of those that differ, by place."""
    one, two = (
        {t: leaves(told, root, int(cell), {}) for t, root in enumerate(told["roots"])} for cell in pair.split(",")
    )
    found = {}
    for place in (t for t in one if one[t] != two[t]):  # other trees cancel
        both = itertools.product(one[place], two[place])
        parts = [(f - g, {b: m.get(b, -1) & n.get(b, -1) for b in m | n}) for (f, m), (g, n) in both]
        found[place] = [part for part in parts if all(part[1].values())]  # an input in common
    return one, two, found


def proved(told, question, log):
    """The bound that a log proves of a question, over all pairs of values."""
    sizes = [1 if block == told["changing"] else size for block, size in enumerate(told["sizes"])]
    starts, found = np.concatenate([[0], np.cumsum(sizes)]).tolist(), -np.inf
    pairs = [f"{s},{t}" for s, t in itertools.permutations(range(told["sizes"][told["changing"]]), 2)]
    refuse(not pairs, "there are no pairs of values")
    refuse(sorted(log) != sorted(pairs) or not all(log.values()), "the log is not about every pair of values")
    for pair in pairs:
        trees, counted = trees_of(told, pair), 0
        for groups, boxes in boxes_of(told, log[pair], starts):
            refuse(not set(groups) <= {"first", "more", "less", "gap"}, "the log adds up trees of another sum")
            found, counted = max(found, float(bounds(told, question, trees, groups, boxes, starts).max())), counted + 1
        refuse(not counted, "the log has no box that holds an input")
    return found


def check_fields(told, graph, tested):
    """Every field is there, none besides, and no place or cell is one that there is not."""
    blocks = told["domain"]
    for block in blocks:
        refuse(set(block) not in (NUMBERS, LISTED), "a block of the domain lacks a field, or has others")
        cells = {cell for _, cell in block.get("members", ())}
        whole = cells == set(range(len(cells))) and len(block.get("choices", ())) == len(block.get("members", ()))
        refuse(not whole or not (block.get("ends") or cells), "a block of the domain has no cells, or negative ones")
    names = [column for block in blocks for column in block["columns"]]
    fed = [column for _, _, columns in told["inputs"] for column in columns]
    refuse(len(set(names)) < len(names) or not set(fed) <= set(names), "the domain has a column twice, or lacks one")
    refuse([[name, kind] for name, kind, _ in told["inputs"]] != [[n, k] for n, k in graph.kinds.items()],
           "the inputs are not those of the model")  # fmt: skip
    refuse(type(told["changing"]) is not int or not 0 <= told["changing"] < len(blocks), "nothing changes")
    refuse(set(told["features"]) != {str(one) for one in tested}, "the features are not those that the trees read")
    for block, low, high in told["features"].values():
        size = 1 if block == -1 else len(blocks[block].get("ends") or {c for _, c in blocks[block]["members"]})
        refuse(block < -1 or len(low) != size or len(high) != size, "a feature has other cells than its block")
    refuse(not set(told["logs"]) <= {FLIP, SCORE, CHANCE}, "there are logs of other questions")
    refuse(not number(told["rounding"]) >= 0, "the rounding is negative")


def problem_of(told, graph):
    """What the proof is about, with the trees of the file, in the form that `proved` takes."""
    refuse(told["model_sha256"] != graph.sha256, "the proof is about another model file")
    model, matrix = model_of(graph, told["trees"])
    check_fields(told, graph, {feature for mode, feature, _, _ in model["tests"] if mode != "LEAF"})
    sizes = [len(b["ends"]) if "ends" in b else 1 + max(cell for _, cell in b["members"]) for b in told["domain"]]
    refuse(told["direction"] not in (1, -1) or number(told["base"]) != told["direction"] * model["base"],
           "the constant that is added to the trees is another one")  # fmt: skip
    refuse(number(told["rounding"]) < model["rounding"] * (1 - 1e-9), "rounding may do more than the proof says")
    tests = cells_of_tests(model, told["features"])
    refuse(digest_of(told, model, sizes, tests) != told["problem_sha256"], "the digest is not that of the proof")
    run_encoders(told, graph, matrix)
    leaf = [told["direction"] * value for value in model["value"]]
    threshold = told["threshold"] and number(told["threshold"])
    return told | model | {"tests": tests, "leaf": leaf, "sizes": sizes, "base": number(told["base"]),
                           "threshold": threshold, "rounding": number(told["rounding"])}  # fmt: skip


def holds(told, question, finding):
    """Whether the report's upper end follows from the bound that the log proves; None where it claims nothing."""
    low, high = finding["interval"]
    refuse(not (math.isfinite(low) and math.isfinite(high) and low <= high), f"{question}: the interval is none")
    if (question == FLIP and high == 1.0) or (question == CHANCE and high >= 1.0):
        return None
    evidence = finding["evidence"]
    if "narrowed" in evidence:  # to values of the table: it claims nothing of other inputs
        return None
    lacking = {"version", "rounding", "proved", "problem_sha256", "domain"} - set(evidence)
    refuse(lacking or set(evidence) - EVIDENCE, f"{question}: the evidence lacks a field, or has others")
    refuse(evidence["version"] != 3 or evidence["rounding"] != told["rounding"], f"{question}: of another proof")
    refuse(set(evidence["domain"]) != {b["name"] for b in told["domain"]}, f"{question}: about another domain")
    refuse(evidence.get("problem_sha256") != told["problem_sha256"], f"{question}: the report is about another proof")
    refuse("near" in finding["parameters"], f"{question}: the report is about inputs near people: make it anew")
    refuse(not told["logs"].get(question), f"{question}: the proof has no log of it")
    bound, rounding = proved(told, question, told["logs"][question]), told["rounding"]
    refuse(question != FLIP and not math.isfinite(bound), f"{question}: its bound is no number")
    slack = 1e-9 * max(1.0, abs(bound)) if math.isfinite(bound) else 0.0
    if bound > evidence["proved"] + slack:
        return False, bound
    upper = {FLIP: 0.0 if bound <= -rounding + slack else 1.0, SCORE: max(bound, 0.0) + 2 * rounding,
             CHANCE: max(bound, 0.0) + 0.5 * rounding + 1e-6}[question]  # fmt: skip
    return upper <= high + slack, bound


def shown_of(block):
    """A block of the domain in words."""
    if "ends" not in block:
        values = ["+".join(map(str, some)) for some in block["choices"]]
        return f"{block['name']}: {', '.join(values[:30])}{f', {len(values) - 30} others' * (len(values) > 30)}"
    ends = [float.fromhex(text) for text in block["ends"]]
    last = max(end for end in ends if not math.isnan(end))
    words = ", whole" * block["whole"] + ", or missing" * any(map(math.isnan, ends))
    return f"{block['name']}: {float.fromhex(block['low'])!r} to {last!r}{words}"


def main(proof, model, report):
    """Check every claim of a report; 1 where one does not hold."""
    code, said = 0, 0
    try:
        told = strict(pathlib.Path(proof).read_text())
        refuse(told.get("schema") != "fairkit.all-inputs/3", "the proof is of another version: make it anew")
        refuse(set(told) != FIELDS, "the proof lacks a field, or has others")
        graph = Graph(pathlib.Path(model).read_bytes())
        digest, findings = claims_of(report)
        refuse(digest != graph.sha256, "the report is about another model file")
        told = problem_of(told, graph)
        for block in told["domain"]:  # what every statement is about
            sys.stdout.write(f"domain: {shown_of(block)}\n")
        for question in (FLIP, SCORE, CHANCE):
            found = holds(told, question, findings[question]) if question in findings else None
            if found is None:
                sys.stdout.write(f"{question}: nothing to prove (a witness decides it, or it is not decided)\n")
                continue
            good, bound = found
            said, code = said + 1, code if good else 1
            high = findings[question]["interval"][1]
            sys.stdout.write(f"{question}: at most {high:.9g}, proved {bound:.9g}: {'holds' if good else 'REFUTED'}\n")
        refuse(not said, "the report claims nothing that a proof could show")
    except (RefusedError, KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        sys.stdout.write(
            f"REFUSED: {error if isinstance(error, RefusedError) else f'the files are damaged ({error!r})'}\n"
        )
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
