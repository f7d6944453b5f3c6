"""Check a network's proof of `fairkit audit --auditor all-inputs --set all-inputs.save_proof=proof.json` without fairkit.

    python all_inputs_network_check.py proof.json model.onnx report.json

The report is what `fairkit audit --format json` printed, or a certificate (whose signature `fairkit verify` checks). The weights
are read from the ONNX file; from the proof come the domain, what the file's encoders make of each cell (run anew with onnxruntime,
where there are any), the log, and for each of its boxes multipliers, which prove a bound whatever they are. Nothing is searched, and
no float is computed with: bounds are whole numbers and fractions. It exits with 1 where anything is not as the report says. It needs
the files all_inputs_read.py and all_inputs_network_bounds.py beside it; onnxruntime and numpy to run encoders, and for nothing else.
"""

import hashlib
import itertools
import json
import math
import pathlib
import random
import struct
import sys
from fractions import Fraction

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))  # also where Python's safe path leaves it out

from all_inputs_network_bounds import ERRORS, SLOPES, Box, bound, up
from all_inputs_read import Graph, RefusedError, claims_of, number, refuse, strict

FLIP, SCORE, CHANCE = "all_inputs_flip", "all_inputs_score_change", "all_inputs_probability_change"
SCHEMA = "fairkit.all-inputs-network/1"
READ = ("Gemm", "MatMul", "Add", "Sub", "Mul", "Relu", "Identity", "Cast", "Flatten", "Reshape", "Dropout")
UNIT = Fraction(1, 1 << 24)  # half a unit in the last place of float32, relative
SOFTMAX = Fraction(1, 10**5)  # how far from the threshold a Softmax of two may decide either way


def exact(values):
    """Numbers of a file as fractions."""
    refuse(not all(math.isfinite(value) for value in values), "the model has a weight that is no finite number")
    return [Fraction(value) for value in values]


def rounded(part, operations=1):
    """What so many operations of float32 add, in any order, to each sum."""
    more = Fraction(101, 100) * operations * UNIT * (1 + operations * UNIT)
    rough = [
        [r + more * s for r, s in zip(*rows, strict=True)] for rows in zip(part["rough"], part["spread"], strict=True)
    ]
    return part | {"rough": rough, "base": [b + more * s for b, s in zip(part["base"], part["size"], strict=True)]}


def values_of(width):
    """The values of a layer's units, as sums of themselves."""
    one = [[Fraction(int(i == j)) for j in range(width)] for i in range(width)]
    none = [Fraction(0)] * width
    return {
        "weights": one,
        "spread": one,
        "rough": [none] * width,
        "bias": none,
        "size": none,
        "base": none,
        "plain": True,
    }


def mapped(part, matrix):
    """A product with constants, as the runtime computes it."""
    size = [[abs(w) for w in row] for row in matrix]
    if part["plain"]:
        weights, spread, rough = matrix, size, [[Fraction(0)] * len(row) for row in matrix]
    else:
        weights, spread, rough = (
            [
                [sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*part[key], strict=True)]
                for row in rows
            ]
            for key, rows in (("weights", matrix), ("spread", size), ("rough", size))
        )
    rows = {"bias": matrix, "size": size, "base": size}
    sums = {
        key: [sum((a * b for a, b in zip(row, part[key], strict=True)), Fraction(0)) for row in some]
        for key, some in rows.items()
    }
    made = {"weights": weights, "spread": spread, "rough": rough, **sums, "plain": False}
    return rounded(made, len(matrix[0]) + 1)


def scaled(part, factors):
    """Sums times constants."""
    sizes = [abs(factor) for factor in factors]
    made = {
        key: [[f * w for w in row] for f, row in zip(some, part[key], strict=True)]
        for key, some in (("weights", factors), ("spread", sizes), ("rough", sizes))
    }
    made |= {
        key: [f * w for f, w in zip(some, part[key], strict=True)]
        for key, some in (("bias", factors), ("size", sizes), ("base", sizes))
    }
    return rounded(made | {"plain": False})


def moved(part, row):
    """Sums and a constant for each."""
    bias = [b + c for b, c in zip(part["bias"], row, strict=True)]
    size = [s + abs(c) for s, c in zip(part["size"], row, strict=True)]
    return rounded(part | {"bias": bias, "size": size, "plain": False})


def constant(graph, name, width, node):
    """A constant that is one number, or one for each column."""
    refuse(name not in graph.constants, f"{node}: {name!r} is no constant of the file")
    shape, values = graph.constants[name]
    fits = len(values) == 1 or (len(values) == width and shape[-1] == width)
    refuse(not fits, f"{node}: the constant {name!r} has another shape")
    return exact(values) * (width if len(values) == 1 else 1)


def dense(graph, part, kind, inputs, own, node):
    """What a Gemm or MatMul makes."""
    refuse(own.get("transA") or inputs[1] not in graph.constants, f"{node} is no product with constants")
    shape, values = graph.constants[inputs[1]]
    refuse(len(shape) != 2 or shape[0] * shape[1] != len(values), f"{node}: the weights are no matrix")
    rows = [exact(values[i * shape[1] : (i + 1) * shape[1]]) for i in range(shape[0])]
    matrix = rows if own.get("transB") else [list(column) for column in zip(*rows, strict=True)]
    refuse(len(matrix[0]) != len(part["bias"]), f"{node}: the weights have another width than what they weigh")
    made = mapped(part, matrix)
    alpha, beta = Fraction(own.get("alpha", 1.0)), Fraction(own.get("beta", 1.0))
    made = made if alpha == 1 else scaled(made, [alpha] * len(matrix))
    if kind == "Gemm" and len(inputs) > 2 and inputs[2]:
        made = moved(made, [beta * one for one in constant(graph, inputs[2], len(matrix), node)])
        made = made if beta == 1 else rounded(made)
    return made


def straight(graph, part, kind, inputs, own, node):
    """What an operator makes that is no layer of its own."""
    width = len(part["bias"])
    if kind == "Cast":
        refuse(own.get("to") not in (1, 11), f"{node} makes whole numbers")
        return rounded(part)
    if kind in ("Add", "Sub", "Mul"):
        refuse(len(inputs) != 2 or (kind == "Sub" and inputs[0] in graph.constants), f"{node} is not read here")
        row = constant(graph, inputs[0] if inputs[0] in graph.constants else inputs[1], width, node)
        return scaled(part, row) if kind == "Mul" else moved(part, row if kind == "Add" else [-one for one in row])
    if kind == "Reshape":
        shape = graph.constants.get(inputs[1], ((), ()))[1]
        refuse(len(shape) != 2 or shape[1] not in (-1, width) or shape[0] not in (-1, 0), f"{node} is not read here")
    refuse(kind == "Flatten" and own.get("axis", 1) != 1, f"{node} is not read here")
    return part


def layers_of(graph, matrix, output, width):
    """The layers between the features and the sum, each of the layer before alone."""
    known, layers = {matrix: (0, values_of(width))}, []
    for kind, inputs, outputs, own in graph.nodes:
        names = [name for name in inputs if name in known]
        if output in known or not names:
            continue
        node = f"the node {kind} {outputs[0]!r}"
        level, part = known[names[0]]
        refuse(kind not in READ, f"{node} of the network is not read here; these are: {', '.join(READ)}")
        refuse(len(names) > 1 or level != len(layers), f"{node} reads an earlier layer")
        if kind == "Relu":
            layers.append(part)
            known[outputs[0]] = (len(layers), values_of(len(part["bias"])))
            continue
        make = dense if kind in ("Gemm", "MatMul") else straight
        known[outputs[0]] = (level, make(graph, part, kind, inputs, own, node))
    refuse(output not in known or known[output][0] != len(layers), "the network does not end where the proof says")
    last = known[output][1]
    refuse(len(last["bias"]) not in (1, 2), "the network's last layer has no single sum, and no two")
    two = len(last["bias"]) == 2
    return [*layers, mapped(last, [[Fraction(-1), Fraction(1)]]) if two else last], two


def network_of(told, graph, width):
    """The network in whole numbers: rows of weights by 2^-scale, features by 2^-grain."""
    layers, two = layers_of(graph, told["matrix"], told["output"], width)
    if told["direction"] == -1:
        layers[-1] = layers[-1] | {
            "weights": [[-w for w in row] for row in layers[-1]["weights"]],
            "bias": [-one for one in layers[-1]["bias"]],
        }
    scale = 0
    for layer in layers:
        for row in (*layer["weights"], *layer["spread"], layer["bias"]):
            scale = max(scale, *(one.denominator.bit_length() - 1 for one in row))
    refuse(scale > 4_000, "the weights are no binary fractions")
    whole = lambda some: [int(one * (1 << scale)) for one in some]  # noqa: E731 -- exact: see the scale
    made = []
    for layer in layers:
        rows = [whole(row) for row in layer["weights"]]
        made.append({
            "rows": rows, "columns": [list(column) for column in zip(*rows, strict=True)], "bias": whole(layer["bias"]),
            "spread": [whole(row) for row in layer["spread"]],
            "rough": [[up(one, ERRORS) for one in row] for row in layer["rough"]],
            "base": [up(one, ERRORS) for one in layer["base"]],
        })  # fmt: skip
    return {"layers": made, "scale": scale}, two


class Domain:
    """The blocks of columns, their cells, and the features of each cell in whole numbers by 2^-grain."""

    def __init__(self, told):
        self.told, self.changing = told, told["changing"]
        blocks, fixed = (told["features"]["blocks"], [Fraction(number(text)) for text in told["features"]["fixed"]])
        self.columns = [block["columns"] for block in blocks]
        each = [j for some in self.columns for j in some]
        refuse(
            len(set(each)) < len(each) or not {*each} <= {*range(len(fixed))}, "a feature is of two blocks, or of none"
        )
        ends = [[[[Fraction(number(text)) for text in cell] for cell in block[key]] for key in ("first", "last")]
                for block in blocks]  # fmt: skip
        every = [*fixed, *(one for block in ends for some in block for cell in some for one in cell)]
        self.grain = max(one.denominator.bit_length() - 1 for one in every)
        whole = lambda some: [int(one * (1 << self.grain)) for one in some]  # noqa: E731 -- exact: see the grain
        self.first, self.last = ([[whole(cell) for cell in block[side]] for block in ends] for side in (0, 1))
        self.fixed, self.ranges = whole(fixed), [block["range"] for block in blocks]
        self.sizes = [len(block["ends"]) if "ends" in block else 1 + max(cell for _, cell in block["members"])
                      for block in told["domain"]]  # fmt: skip
        refuse(
            len(told["domain"]) != len(blocks) or not 0 <= self.changing < len(blocks),
            "the blocks are not those of the domain",
        )
        for place, (size, low, high) in enumerate(zip(self.sizes, self.first, self.last, strict=True)):
            refuse(not len(low) == len(high) == size, "a block has another number of cells than features of them")
            refuse(place == self.changing and low != high, "what changes has a cell of several values")
            wide = len(self.columns[place])
            refuse(any(len(cell) != wide for cell in (*low, *high)), "a cell has another number of features")
            if self.ranges[place] and place != self.changing:  # a range of cells lies between the features of its ends
                pairs = list(zip(low, high, strict=True))
                if told["domain"][place]["single"] and len(intervals(told["domain"][place])) < size:
                    pairs[-1] = high[-2:]  # between the last two ends there is no float32
                for j in range(wide):
                    line = [cell[j] for pair in pairs for cell in pair]
                    refuse(
                        line != sorted(line) and line != sorted(line, reverse=True),
                        "a feature turns inside a range of cells",
                    )

    def side(self, cell):
        """What the changing block adds to the features at a cell."""
        found = [0] * len(self.fixed)
        for j, value in zip(self.columns[self.changing], self.first[self.changing][cell], strict=True):
            found[j] = value
        return found

    def root(self):
        """The box of everything: ranges of cells, and sets of them as bits."""
        return [[0, 0] if place == self.changing else [0, size - 1] if ranged else (1 << size) - 1
                for place, (size, ranged) in enumerate(zip(self.sizes, self.ranges, strict=True))]  # fmt: skip

    def opened(self, net, cells):
        """A box of cells as ranges of features."""
        owned = {j for some in self.columns for j in some}
        plain, sets = [(j, value, value) for j, value in enumerate(self.fixed) if j not in owned], []
        for place, some in enumerate(cells):
            if place == self.changing:
                continue
            low, high, mine = self.first[place], self.last[place], self.columns[place]
            if self.ranges[place]:
                pairs = zip(mine, low[some[0]], high[some[1]], strict=True)
                plain += [(j, min(one, two), max(one, two)) for j, one, two in pairs]
                continue
            sets.append([
                [part for part in zip(mine, low[cell], high[cell], strict=True) if part[1] or part[2]]
                for cell in range(self.sizes[place]) if some >> cell & 1
            ])  # fmt: skip
        return Box(net, plain, sets)


def boxes_of(domain, splits, units):
    """The closed boxes of a log that hold an input, with the signs of their split units: sides of a split cover all of it."""
    waiting = [(domain.root(), {})]
    for entry in splits:
        refuse(not waiting, "the log goes on after its last box")
        box, signs = waiting.pop()
        if entry == 0 and not isinstance(entry, bool):
            if all(some[0] <= some[1] if isinstance(some, list) else some for some in box):
                yield box, signs
            continue
        refuse(not isinstance(entry, list) or len(entry) != 2, "the log has an entry that is no split")
        block, key = entry
        if block == "u":
            refuse(type(key) is not int or not 0 <= key < units or key in signs, f"the log splits the unit {key!r}")
            waiting += [(list(box), signs | {key: 1}), (list(box), signs | {key: -1})]
            continue
        refuse(type(block) is not int or not 0 <= block < len(box), "the log splits a block that is not there")
        left, right, some = list(box), list(box), box[block]
        if isinstance(some, list):
            refuse(type(key) is not int, "the log splits a range at no cell")
            left[block], right[block] = [some[0], min(some[1], key - 1)], [max(some[0], key), some[1]]
        else:
            cells = int(key, 16)
            left[block], right[block] = some & cells, some & ~cells
        waiting += [(right, signs), (left, signs)]
    refuse(waiting, "the log leaves boxes open")


def proved(told, net, domain, question, log):
    """The bound that a log proves of a question, over all pairs of values; None: no input is in any box."""
    pairs = [f"{s},{t}" for s, t in itertools.permutations(range(domain.sizes[domain.changing]), 2)]
    refuse(not pairs or sorted(log) != sorted(pairs), "the log is not about every pair of values")
    widths = [len(layer["bias"]) for layer in net["layers"][:-1]]
    refuse(question == FLIP and told["threshold"] is None, "the proof has no threshold")
    largest, threshold = None, Fraction(0)
    if question == FLIP and math.isinf(float.fromhex(told["threshold"])):
        return None  # every sum is decided alike
    if question == FLIP:
        threshold = Fraction(number(told["threshold"]))
    for pair in pairs:
        sides = [domain.side(int(cell)) for cell in pair.split(",")]
        rows = iter(log[pair]["multipliers"])
        for cells, signs in boxes_of(domain, log[pair]["splits"], 2 * sum(widths)):
            row = next(rows, None)
            refuse(
                not isinstance(row, list) or len(row) != 2 + 2 * sum(widths), "a box has not a multiplier for each unit"
            )
            numbers = iter([round(Fraction(one) * (1 << SLOPES)) for one in row])
            rates = next(numbers), next(numbers)
            multipliers = [[list(itertools.islice(numbers, width)) for _ in (0, 1)] for width in widths]
            places = itertools.count()
            each = [[signs.get(next(places), 0) for _ in range(width)] for width in widths * 2]
            signed = [
                list(zip(*some, strict=True)) for some in zip(each[: len(widths)], each[len(widths) :], strict=True)
            ]
            most = bound(
                net,
                question,
                domain.opened(net, cells),
                sides,
                signed if signs else None,
                rates,
                multipliers,
                threshold,
            )
            if most is not None:
                largest = most if largest is None else max(largest, most)
        refuse(next(rows, None) is not None, "there are more multipliers than boxes")
    return largest


def first_of(block):
    """A raw value of each of a block's columns."""
    return [float.fromhex(block["low"])] if "ends" in block else block["choices"][0]


def intervals(block):
    """The smallest and the largest number of each cell; without the last one where no float32 is in it."""
    low, found = number(block["low"]), []
    for text in block["ends"]:
        high = float.fromhex(text)
        if math.isnan(high):
            found.append((high, high))
            continue
        refuse(not math.isfinite(high), "a cell of the domain has no end")
        if block["single"] and low > high and text == block["ends"][-1]:
            break
        refuse(low > high, "a cell of the domain is empty")
        found.append((low, high))
        if block["whole"]:
            low = high + 1
        elif block["single"]:  # the next float32
            bits = struct.unpack("<i", struct.pack("<f", high))[0]
            after = 1 if high == 0 else bits + 1 if bits >= 0 else bits - 1
            low = struct.unpack("<f", struct.pack("<i", after))[0]
        else:
            low = math.nextafter(high, math.inf)
    return found


def inputs_of(told, draw):
    """Raw values by block, with their cells: both ends of each cell, some inside, every listed value; then any combination."""
    options = []
    for block in told["domain"]:
        if "ends" not in block:
            options.append(
                [(cell, choice, "in") for (_, cell), choice in zip(block["members"], block["choices"], strict=True)]
            )
            continue
        some = []
        for cell, (low, high) in enumerate(intervals(block)):
            inside = [] if not low < high or block["whole"] else [draw.uniform(low, high) for _ in range(3)]
            some += [(cell, [low], "first"), (cell, [high], "last"), *((cell, [value], "in") for value in inside)]
        options.append(some)
    base = [(0, first_of(block), "in") for block in told["domain"]]
    for place, some in enumerate(options):
        yield from ([*base[:place], one, *base[place + 1 :]] for one in some)
    for _ in range(300):
        yield [draw.choice(some) for some in options]


def run_encoders(told, graph, domain):
    """Run the file's own encoders: the features of each cell are as the proof says, and of its own block alone."""
    rows = list(inputs_of(told, random.Random(0)))
    names = [name for block in told["domain"] for name in block["columns"]]
    table = [dict(zip(names, itertools.chain(*(one[1] for one in row)), strict=True)) for row in rows]
    for features, row in zip(features_of(told, graph, table), rows, strict=True):
        refuse(len(features) != len(domain.fixed), "the model's encoders make another number of features")
        values = [Fraction(value) * (1 << domain.grain) for value in exact(features)]
        owned = {j for some in domain.columns for j in some}
        wrong = any(values[j] != value for j, value in enumerate(domain.fixed) if j not in owned)
        for place, (cell, _, where) in enumerate(row):
            low, high = domain.first[place][cell], domain.last[place][cell]
            for j, one, two in zip(domain.columns[place], low, high, strict=True):
                ends = {"first": (one, one), "last": (two, two), "in": (min(one, two), max(one, two))}[where]
                wrong = wrong or not ends[0] <= values[j] <= ends[1]
        refuse(wrong, "the model's encoders make other features of a cell than the proof says")


def features_of(told, graph, table):
    """The features of raw rows: as they are, or by onnxruntime."""
    if told["matrix"] in graph.inputs:
        kind, columns = next((kind, columns) for name, kind, columns in told["inputs"] if name == told["matrix"])
        single = kind == "tensor(float)"
        refuse(not single and kind != "tensor(double)", "the features are no float numbers")
        return [
            [struct.unpack("<f", struct.pack("<f", row[c]))[0] if single else row[c] for c in columns] for row in table
        ]
    import numpy as np
    import onnxruntime

    kinds = {"tensor(float)": np.float32, "tensor(double)": float, "tensor(int64)": np.int64, "tensor(string)": object,
             "tensor(int32)": np.int32, "tensor(bool)": bool, "tensor(float16)": np.float16}  # fmt: skip
    feeds = {
        name: np.array([[row[column] for column in columns] for row in table], dtype=kinds[kind])
        for name, kind, columns in told["inputs"]
    }
    session = onnxruntime.InferenceSession(graph.showing(told["matrix"]), providers=["CPUExecutionProvider"])
    return session.run([told["matrix"]], feeds)[0].astype(float).tolist()


def problem_of(told, graph):
    """What the proof is about: the network of the file, and the domain."""
    refuse(told["model_sha256"] != graph.sha256, "the proof is about another model file")
    refuse(told["direction"] not in (1, -1), "the direction is none")
    domain = Domain(told)
    net, two = network_of(told, graph, len(domain.fixed))
    band = Fraction(number(told["band"]))
    refuse(band < (SOFTMAX if two else 0), "decisions near the threshold are taken to be surer than they are")
    run_encoders(told, graph, domain)
    return net | {"grain": domain.grain, "band": band}, domain


def holds(told, net, domain, question, finding):
    """Whether the report's upper end follows from the bound that the log proves; None where it claims nothing."""
    low, high = finding["interval"]
    refuse(not (math.isfinite(low) and math.isfinite(high) and low <= high), f"{question}: the interval is none")
    if (question == FLIP and high == 1.0) or (question == CHANCE and high >= 1.0):
        return None
    evidence = finding["evidence"]
    statement = {name: value for name, value in told.items() if name != "logs"}
    digest = hashlib.sha256(json.dumps(statement, sort_keys=True).encode()).hexdigest()
    refuse(evidence.get("statement_sha256") != digest, f"{question}: the report is about another proof")
    refuse("near" in finding["parameters"], f"{question}: the report is about inputs near people")
    refuse(not told["logs"].get(question), f"{question}: the proof has no log of it")
    largest = proved(told, net, domain, question, told["logs"][question])
    refuse(largest is None and question != FLIP, f"{question}: no box of the log holds an input")
    if question == FLIP:
        return largest is None or largest < 0, largest
    return max(largest, 0) <= Fraction(high), largest


def main(proof, model, report):
    """Check every claim of a report; 1 where one does not hold."""
    code, said = 0, 0
    try:
        told = strict(pathlib.Path(proof).read_text())
        refuse(told.get("schema") != SCHEMA, "the proof is none of a network, or of another version: make it anew")
        graph = Graph(pathlib.Path(model).read_bytes())
        digest, findings = claims_of(report)
        refuse(digest != graph.sha256, "the report is about another model file")
        net, domain = problem_of(told, graph)
        for question in (FLIP, SCORE, CHANCE):
            outcome = holds(told, net, domain, question, findings[question]) if question in findings else None
            if outcome is None:
                sys.stdout.write(f"{question}: nothing to prove (a witness decides it, or it was not decided)\n")
                continue
            good, largest = outcome
            said, code = said + 1, code if good else 1
            high, shown = (findings[question]["interval"][1], "nothing" if largest is None else f"{float(largest):.9g}")
            sys.stdout.write(f"{question}: at most {high:.9g}, proved {shown}: {'holds' if good else 'REFUTED'}\n")
        refuse(not said, "the report claims nothing that a proof could show")
    except (
        RefusedError,
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        OverflowError,
        StopIteration,
    ) as error:
        sys.stdout.write(
            f"REFUSED: {error if isinstance(error, RefusedError) else f'the files are damaged ({error!r})'}\n"
        )
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
