"""Check a proof of `fairkit audit --auditor all-inputs --set all-inputs.save_proof=proof.json` with numpy alone.

    python all_inputs_check.py proof.json

It searches nothing: for each pair of values it rebuilds the boxes of the log, which cover every input, and bounds each one
anew. It exits with 1 where a bound is larger than claimed. It knows nothing of fairkit.
"""

import itertools
import json
import pathlib
import sys

import numpy as np


def leaves(told, node, cell, box):
    """Every leaf that can be reached with the changing block at a cell: its value, and the cells of each block it needs."""
    block, cells = told["tests"][node][0], int(told["tests"][node][1], 16)
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
        total += best
    return total


def distances(told, starts):
    """For each person, the distance that each cell adds; one person of no distances where the log is not about people."""
    found = np.zeros((len(told.get("people", [0])), starts[-1]))
    for cost, person in zip(found, told.get("people", []), strict=False):
        for block, (cells, values) in person.items():
            cost[starts[int(block)] : starts[int(block) + 1]] = np.inf
            cost[starts[int(block)] + np.array(cells, dtype=int)] = values
    return found


def boxes_of(told, log, starts, cost):
    """The closed boxes of a log that are near enough: each split is replaced by its sides, which cover everything."""
    waiting, found = [np.isfinite(cost)], []
    for entry in log:
        box = waiting.pop()
        if entry == 0:
            found.append(box)
            continue
        block, cells = entry[0], int(entry[1], 16) if isinstance(entry[1], str) else (1 << entry[1]) - 1
        side = np.array([cells >> c & 1 for c in range(told["sizes"][block])], dtype=bool)
        for half in (~side, side):
            waiting.append(box.copy())
            waiting[-1][starts[block] : starts[block + 1]] &= half
    if waiting:
        raise SystemExit("the log leaves boxes open")
    boxes = np.array(found)
    least = sum(np.where(boxes[:, a:b], cost[a:b], np.inf).min(axis=1) for a, b in itertools.pairwise(starts))
    return boxes[least <= told.get("near", 0)]


def bounds(told, question, pair, boxes, starts):
    """An upper bound of the question's objective in each box of a pair's log."""
    at = [[leaves(told, root, int(cell), {}) for root in told["roots"]] for cell in pair.split(",")]
    both = [itertools.product(f, g) for f, g in zip(*at, strict=True) if f != g]  # other trees cancel
    both = [[(f - g, {b: m.get(b, -1) & n.get(b, -1) for b in m | n}) for (f, m), (g, n) in x] for x in both]
    differences = [[part for part in some if all(part[1].values())] for some in both]  # an input in common
    gap = largest(differences, boxes, starts)
    if question == "all_inputs_score_change":
        return gap
    high, top = (told["base"] + largest(trees, boxes, starts) for trees in at)
    low = told["base"] - largest(at[1], boxes, starts, -1)
    if question == "all_inputs_flip":
        found = np.minimum(np.minimum(high - told["threshold"], told["threshold"] - low), gap / 2)
        moving = sum(np.abs(largest([d], boxes, starts, sign)) for d in differences for sign in (1, -1))
        return np.where(moving == 0, -np.inf, found)  # no tree differs: both sums are rounded alike
    g = np.maximum(low, np.minimum(np.minimum(-gap / 2, top), high - gap))
    return 1 / (1 + np.exp(-np.minimum(high, g + gap))) - 1 / (1 + np.exp(-g))


def main(told):
    """Check every question of a file; 1 where a claim does not hold."""
    sizes = [1 if block == told["changing"] else size for block, size in enumerate(told["sizes"])]
    starts, code = np.concatenate([[0], np.cumsum(sizes)]).tolist(), 0
    costs = distances(told, starts)
    pairs = [f"{s},{t}" for s, t in itertools.permutations(range(told["values"]), 2)]
    for question, log in told["logs"].items():
        each = log if isinstance(log, list) else [log]  # with people, a log for each of them
        if len(each) != len(costs) or any(set(one) != set(pairs) for one in each):
            sys.stdout.write(f"{question}: no proof (a witness decides it, or it is not in this file)\n")
            continue
        found = -np.inf
        for pair in pairs:
            some = [boxes_of(told, one[pair], starts, cost) for one, cost in zip(each, costs, strict=True)]
            most = bounds(told, question, pair, np.concatenate(some), starts)
            found = max(found, most.max(initial=-np.inf))
        claim = told["claims"][question]
        holds = found <= claim + 1e-9 * max(1, abs(found) if np.isfinite(found) else 1)
        said, code = ("holds", code) if holds else ("REFUTED", 1)
        sys.stdout.write(f"{question}: claimed {claim:.9g}, proved {found:.9g}: {said}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(json.loads(pathlib.Path(sys.argv[1]).read_text())))
