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
    """The closed boxes of a log that are near enough, by the trees to add up: sides of a split cover all of it."""
    waiting, found = [(np.isfinite(cost), 0)], [({}, [])]
    for entry in log:
        box, mine = waiting.pop()
        if isinstance(entry, dict):
            waiting.append((box, len(found)))
            found.append((entry, []))
        elif entry == 0:
            found[mine][1].append(box)
        else:
            block, cells = entry[0], int(entry[1], 16) if isinstance(entry[1], str) else (1 << entry[1]) - 1
            side = np.array([bool(cells >> c & 1) for c in range(told["sizes"][block])])
            for half in (~side, side):
                waiting.append((box.copy(), mine))
                waiting[-1][0][starts[block] : starts[block + 1]] &= half
    if waiting:
        raise SystemExit("the log leaves boxes open")
    for groups, some in found:
        boxes = np.array(some).reshape(-1, starts[-1])
        ends = itertools.pairwise(starts)
        least = sum(np.where(boxes[:, a:b], cost[a:b], np.inf).min(axis=1) for a, b in ends)
        if (least <= told.get("near", 0)).any():
            yield groups, boxes[least <= told.get("near", 0)]


def joined(trees, groups, boxes, starts, sign=1):
    """The trees (by place in the roots), those of each group as one: the sums at leaves that have an input in common."""
    together = [place for group in groups for place in group]
    if len(set(together)) < len(together) or not {*together} <= {*trees}:
        raise SystemExit("the log adds up trees twice, or trees that are not there")
    bits = [
        sum(1 << c for c in np.flatnonzero(some).tolist())
        for some in np.split(boxes.any(axis=0), starts[1:-1])
    ]
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
    first, second, differences = trees
    gap = joined(differences, groups.get("gap", []), boxes, starts)
    if question == "all_inputs_score_change":
        return gap
    high = told["base"] + joined(first, groups.get("first", []), boxes, starts)
    top = told["base"] + joined(second, groups.get("more", []), boxes, starts)
    low = told["base"] - joined(second, groups.get("less", []), boxes, starts, -1)
    if question == "all_inputs_flip":
        found = np.minimum(np.minimum(high - told["threshold"], told["threshold"] - low), gap / 2)
        each = differences.values()
        moving = sum(
            (np.abs(largest([d], boxes, starts, sign)) for d in each for sign in (1, -1)),
            np.zeros(len(boxes)),
        )
        return np.where(moving == 0, -np.inf, found)  # no tree differs: both sums are rounded alike
    g = np.maximum(low, np.minimum(np.minimum(-gap / 2, top), high - gap))
    return 1 / (1 + np.exp(-np.minimum(high, g + gap))) - 1 / (1 + np.exp(-g))


def trees_of(told, pair):
    """The leaves of each tree at both values of a pair, and of the differences of those that differ, by place."""
    first, second = (
        {t: leaves(told, root, int(cell), {}) for t, root in enumerate(told["roots"])}
        for cell in pair.split(",")
    )
    found = {}
    for place in (t for t in first if first[t] != second[t]):  # other trees cancel
        both = itertools.product(first[place], second[place])
        parts = [(f - g, {b: m.get(b, -1) & n.get(b, -1) for b in m | n}) for (f, m), (g, n) in both]
        found[place] = [part for part in parts if all(part[1].values())]  # an input in common
    return first, second, found


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
            trees = trees_of(told, pair)
            for one, cost in zip(each, costs, strict=True):
                for groups, boxes in boxes_of(told, one[pair], starts, cost):
                    found = max(found, bounds(told, question, trees, groups, boxes, starts).max())
        claim = told["claims"][question]
        holds = found <= claim + 1e-9 * max(1, abs(found) if np.isfinite(found) else 1)
        said, code = ("holds", code) if holds else ("REFUTED", 1)
        sys.stdout.write(f"{question}: claimed {claim:.9g}, proved {found:.9g}: {said}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(json.loads(pathlib.Path(sys.argv[1]).read_text())))
