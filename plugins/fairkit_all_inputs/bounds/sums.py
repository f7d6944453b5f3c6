"""The problem of a sum of trees, or of a weighted sum of features, over the cells of a domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit_all_inputs.bounds.problem import Problem
from fairkit_onnx.structure.cells import encode_rows, listed_block, make_blocks
from fairkit_onnx.structure.domain import Block, Listed, Numbers, numbers_block
from fairkit_onnx.structure.group_rules import GroupThresholds, group_thresholds
from fairkit_onnx.structure.pieces import keys_of, numbers_of
from fairkit_onnx.structure.trees import TreeModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit_onnx.structure.encoded import Features
    from fairkit_onnx.structure.linear import LinearModel

POINTS = 256
"""Numbers of a column at which a witness is looked for."""
_UNIT = 2.0**-24


def problem_of(
    model: TreeModel | LinearModel, domains: Sequence[Numbers | Listed], changing: int, features: Features
) -> Problem:
    """Return a model over a domain; see `tree_problem`."""
    if isinstance(model, TreeModel):
        return tree_problem(model, domains, changing, features)
    return linear_problem(model, domains, changing, features)


def tree_problem(model: TreeModel, domains: Sequence[Numbers | Listed], changing: int, features: Features) -> Problem:
    """Return the model over the cells of a domain."""
    source = features.source
    encode, defaults = model.encoding(doubles=True), model.defaults(domains)
    blocks, tests = make_blocks(
        model.ensemble, source, domains, encode, defaults, model.kinds(), model.pieces(domains, features), model.grouped
    )
    ensemble = model.ensemble
    return _decided(
        model,
        model.reach(),
        blocks=blocks,
        changing=changing,
        tests=tests,
        yes=ensemble.yes.tolist(),
        no=ensemble.no.tolist(),
        value=ensemble.value.tolist(),
        roots=ensemble.roots.tolist(),
        base=ensemble.base,
        rounding=model.rounding,
    )


def _decided(model: TreeModel | LinearModel, reach: tuple[float, float], **sums: Any) -> Problem:
    """Return the problem of sums, turned so that larger ones are favorable, with the threshold of decisions.

    Where each group has a threshold, a problem of its own asks for flips: a tree of the groups' thresholds is
    subtracted from the sum, and the rest is compared with zero.
    """
    part, blocks = model.tail.groups, sums["blocks"]
    sums["inputs"] = [(feed.input.name, feed.input.kind, list(feed.columns)) for feed in model.scorer.feeds]
    rule: GroupThresholds | None = None
    threshold: float | None
    if part is None:
        direction, threshold, logistic = model.link(*reach)
    else:
        direction, rule, logistic = group_thresholds(model, blocks, *reach)
        threshold = None
    sums["value"] = [direction * value for value in sums["value"]]
    sums["base"] = direction * sums["base"]
    if rule is None:
        return Problem(**sums, threshold=threshold, logistic=logistic)
    tests, yes, no, value, roots = _tree(blocks, rule, len(sums["tests"]))
    ruled = {
        "tests": [*sums["tests"], *tests],
        "yes": [*sums["yes"], *yes],
        "no": [*sums["no"], *no],
        "value": [*sums["value"], *value],
        "roots": [*sums["roots"], *roots],
    }
    return Problem(**sums, threshold=0.0, logistic=logistic, ruled=Problem(**(sums | ruled), threshold=0.0))


def _tree(
    blocks: Sequence[Block], rule: GroupThresholds, start: int
) -> tuple[list[tuple[int, int]], list[int], list[int], list[float], list[int]]:
    """Return a tree, numbered from `start`, with a group's threshold, negated, in its leaves."""
    tests: list[tuple[int, int]] = []
    yes: list[int] = []
    no: list[int] = []
    value: list[float] = []

    def grow(table: NDArray[np.float64], cells: tuple[NDArray[np.int64], ...]) -> int:
        node = len(tests)
        tests.append((-1, 0))
        yes.append(-1)
        no.append(-1)
        value.append(0.0)
        if np.ptp(table) == 0:
            value[node] = -float(table.flat[0])
            return start + node
        axis = next(k for k in range(table.ndim) if (table != table.take([0], axis=k)).any())
        middle = len(cells[axis]) // 2
        parts = np.split(table, [middle], axis=axis)
        tests[node] = (rule.blocks[axis], sum(1 << int(cell) for cell in cells[axis][:middle]))
        for side, part, here in ((yes, parts[0], slice(None, middle)), (no, parts[1], slice(middle, None))):
            side[node] = grow(part, (*cells[:axis], cells[axis][here], *cells[axis + 1 :]))
        return start + node

    root = grow(rule.table, tuple(np.arange(size) for size in rule.table.shape))
    return tests, yes, no, value, [root]


def linear_problem(
    model: LinearModel, domains: Sequence[Numbers | Listed], changing: int, features: Features
) -> Problem:
    """Return the model over points of a domain: listed values, and so many numbers of each column with its ends."""
    encode, defaults = model.encoding(doubles=True), model.defaults(domains)
    pieces = model.pieces(domains, features)
    blocks = [_block(one, model.kinds(), pieces) for one in domains]
    of_column = {column: place for place, block in enumerate(blocks) for column in block.columns}
    owner = np.array([of_column.get(name or "", -1) for name in features.source])
    matrix, starts = encode_rows(blocks, encode, defaults)
    terms = matrix.astype(np.float64) * model.weights
    base = model.base + float(terms[0, owner < 0].sum())
    for index, block in enumerate(blocks):
        if block.ends is not None:
            _check_pulls(block, terms[starts[index] : starts[index + 1]][:, owner == index])
    parts = [terms[starts[place] : starts[place + 1]][:, owner == place].sum(axis=1) for place in range(len(blocks))]
    reach = abs(base) + sum(
        float(np.abs(terms[starts[place] : starts[place + 1]][:, owner == place]).sum(axis=1).max(initial=0.0))
        for place in range(len(blocks))
    )
    rounding = 1.01 * (model.width + 4) * _UNIT * reach
    ends = sum(float(part.min()) for part in parts), sum(float(part.max()) for part in parts)
    tests, yes, no, value, roots = _trees(blocks, parts)
    return _decided(
        model,
        (base + ends[0] - rounding, base + ends[1] + rounding),
        blocks=blocks,
        changing=changing,
        tests=tests,
        yes=yes,
        no=no,
        value=value,
        roots=roots,
        base=base,
        rounding=rounding,
        points=True,
    )


def _check_pulls(block: Block, terms: NDArray[np.float64]) -> None:
    """Refuse features of one column of which some rise and others fall: no end has their largest sum.

    Each term keeps the order of the column between neighbouring points, or they are the ends of two pieces with no
    number between them.
    """
    assert block.ends is not None  # noqa: S101 -- a block of numbers
    known = int((~np.isnan(block.ends)).sum())
    moves = np.diff(terms[:known], axis=0)
    apart = np.flatnonzero((moves > 0).any(axis=1) & (moves < 0).any(axis=1))
    ends = block.ends[:known]
    following = (
        ends[:-1] + 1
        if block.whole
        else np.nextafter(ends[:-1].astype(np.float32 if block.single else np.float64), np.inf).astype(np.float64)
    )
    apart = apart[ends[1:][apart] > following[apart]]
    if len(apart):
        raise ModelError(
            f"all-inputs: the features that the model makes of {block.name!r} pull against each other between "
            f"{ends[apart[0]]:g} and {ends[apart[0] + 1]:g}, so that the ends do not bound their sum; choose a domain "
            f"without that, with all-inputs.domain.{block.name}=LOW:HIGH"
        )


def _block(domain: Numbers | Listed, kinds: Mapping[str, type], pieces: Mapping[str, NDArray[np.float64]]) -> Block:
    """Return points of a column, the ends of its pieces among them."""
    if isinstance(domain, Listed):
        return listed_block(domain)
    some = np.linspace(domain.low, domain.high, POINTS)
    if domain.whole:
        some = np.round(some) if domain.high - domain.low >= POINTS else np.arange(domain.low, domain.high + 1)
    tops, kind = pieces[domain.name], kinds[domain.name]
    firsts = numbers_of(keys_of(tops[:-1], kind, domain.whole) + 1, kind, domain.whole)
    return numbers_block(domain, np.concatenate([some, [domain.low], firsts, tops]), kind, points=True)


def _trees(
    blocks: Sequence[Block], parts: Sequence[NDArray[np.float64]]
) -> tuple[list[tuple[int, int]], list[int], list[int], list[float], list[int]]:
    """Return a tree for each block that has the block's part of the sum in its leaves."""
    tests: list[tuple[int, int]] = []
    yes: list[int] = []
    no: list[int] = []
    value: list[float] = []
    roots: list[int] = []
    for index, part in enumerate(parts):
        roots.append(len(tests))
        waiting = [(0, len(part), -1)]
        while waiting:
            first, end, parent = waiting.pop()
            node = len(tests)
            if parent >= 0 and yes[parent] < 0:
                yes[parent] = node
            elif parent >= 0:
                no[parent] = node
            yes.append(-1)
            no.append(-1)
            if np.ptp(part[first:end]) == 0:
                tests.append((-1, 0))
                value.append(float(part[first]))
                continue
            middle = (first + end) // 2
            tests.append((index, (1 << middle) - (1 << first) if blocks[index].ordered is False else (1 << middle) - 1))
            value.append(0.0)
            waiting += [(middle, end, node), (first, middle, node)]
    return tests, yes, no, value, roots
