"""The problem of a sum of trees, or of a weighted sum of features, over the cells of a domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import ModelError
from fairkit_all_inputs.bounds.problem import Problem
from fairkit_onnx.structure.cells import encode_rows, listed_block, make_blocks
from fairkit_onnx.structure.domain import Block, Listed, Numbers, numbers_block
from fairkit_onnx.structure.linear import LinearModel
from fairkit_onnx.structure.pieces import keys_of, numbers_of
from fairkit_onnx.structure.trees import TreeModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.classes.model import ClassModel
    from fairkit_all_inputs.bounds.networks.model import NetworkModel
    from fairkit_all_inputs.bounds.questions import AnyProblem
    from fairkit_onnx.structure.encoded import Features

POINTS = 256
"""Numbers of a column at which a witness is looked for."""
_UNIT = 2.0**-24


def problem_of(
    model: TreeModel | LinearModel | NetworkModel | ClassModel,
    domains: Sequence[Numbers | Listed],
    changing: int,
    features: Features,
) -> AnyProblem:
    """Return a model over a domain; see `tree_problem`."""
    if isinstance(model, TreeModel):
        return tree_problem(model, domains, changing, features)
    if isinstance(model, LinearModel):
        return linear_problem(model, domains, changing, features)
    return model.problem(domains, changing, features)


def tree_problem(
    model: TreeModel, domains: Sequence[Numbers | Listed], changing: int, features: Features
) -> Problem:
    """Return the model over the cells of a domain.

    Parameters
    ----------
    domains, changing
        One for each block of columns, and which of them changes.
    features
        From `sources`.

    Raises
    ------
    ModelError
        What precedes or follows the trees is not understood.
    DataError
        A domain is empty or infinite.
    """
    source = features.source
    encode, defaults = model.encoding(doubles=True), model.defaults(domains)
    blocks, tests = make_blocks(
        model.ensemble, source, domains, encode, defaults, model.kinds(), model.pieces(domains, features)
    )
    direction, threshold, logistic = model.link(*model.reach())
    ensemble = model.ensemble
    return Problem(
        blocks=blocks,
        changing=changing,
        tests=tests,
        yes=ensemble.yes.tolist(),
        no=ensemble.no.tolist(),
        value=(direction * ensemble.value).tolist(),
        roots=ensemble.roots.tolist(),
        base=direction * ensemble.base,
        rounding=model.rounding,
        threshold=threshold,
        logistic=logistic,
    )


def linear_problem(
    model: LinearModel, domains: Sequence[Numbers | Listed], changing: int, features: Features
) -> Problem:
    """Return the model over points of a domain: listed values, and so many numbers of each column with its ends.

    Raises
    ------
    ModelError
        What precedes or follows the sum is not understood.
    DataError
        A domain is empty or infinite.
    """
    encode, defaults = model.encoding(), model.defaults(domains)
    pieces = model.pieces(domains, features)
    blocks = [_block(one, model.kinds(), pieces) for one in domains]
    of_column = {column: place for place, block in enumerate(blocks) for column in block.columns}
    owner = np.array([of_column.get(name or "", -1) for name in features.source])
    matrix, starts = encode_rows(blocks, encode, defaults)
    terms = matrix.astype(np.float64) * model.weights
    base = model.base + float(terms[0, owner < 0].sum())
    for place, block in enumerate(blocks):
        if block.ends is not None:
            _check_pulls(block, terms[starts[place] : starts[place + 1]][:, owner == place])
    parts = [
        terms[starts[place] : starts[place + 1]][:, owner == place].sum(axis=1)
        for place in range(len(blocks))
    ]
    reach = abs(base) + sum(
        float(
            np.abs(terms[starts[place] : starts[place + 1]][:, owner == place]).sum(axis=1).max(initial=0.0)
        )
        for place in range(len(blocks))
    )
    rounding = 1.01 * (model.width + 4) * _UNIT * reach
    ends = sum(float(part.min()) for part in parts), sum(float(part.max()) for part in parts)
    direction, threshold, logistic = model.link(base + ends[0] - rounding, base + ends[1] + rounding)
    tests, yes, no, value, roots = _trees(blocks, [direction * part for part in parts])
    return Problem(
        blocks=blocks,
        changing=changing,
        tests=tests,
        yes=yes,
        no=no,
        value=value,
        roots=roots,
        base=direction * base,
        rounding=rounding,
        threshold=threshold,
        logistic=logistic,
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
        else np.nextafter(ends[:-1].astype(np.float32 if block.single else np.float64), np.inf).astype(
            np.float64
        )
    )
    apart = apart[ends[1:][apart] > following[apart]]
    if len(apart):
        raise ModelError(
            f"all-inputs: the features that the model makes of {block.name!r} pull against each other between "
            f"{ends[apart[0]]:g} and {ends[apart[0] + 1]:g}, so that the ends do not bound their sum; choose a domain "
            f"without that, with all-inputs.domain.{block.name}=LOW:HIGH"
        )


def _block(
    one: Numbers | Listed, kinds: Mapping[str, type], pieces: Mapping[str, NDArray[np.float64]]
) -> Block:
    """Return points of a column, the ends of its pieces among them."""
    if isinstance(one, Listed):
        return listed_block(one)
    some = np.linspace(one.low, one.high, POINTS)
    if one.whole:
        some = np.round(some) if one.high - one.low >= POINTS else np.arange(one.low, one.high + 1)
    tops, kind = pieces[one.name], kinds[one.name]
    firsts = numbers_of(keys_of(tops[:-1], kind, one.whole) + 1, kind, one.whole)
    return numbers_block(one, np.concatenate([some, [one.low], firsts, tops]), kind, points=True)


def _trees(
    blocks: Sequence[Block], parts: Sequence[NDArray[np.float64]]
) -> tuple[list[tuple[int, int]], list[int], list[int], list[float], list[int]]:
    """Return a tree for each block that has the block's part of the sum in its leaves."""
    tests: list[tuple[int, int]] = []
    yes: list[int] = []
    no: list[int] = []
    value: list[float] = []
    roots: list[int] = []
    for place, part in enumerate(parts):
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
            tests.append(
                (place, (1 << middle) - (1 << first) if blocks[place].ordered is False else (1 << middle) - 1)
            )
            value.append(0.0)
            waiting += [(middle, end, node), (first, middle, node)]
    return tests, yes, no, value, roots
