"""From thresholds on encoded features to cells of raw columns: found by running the graph's own encoders."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit_onnx.structure.domain import Block, Listed, Numbers, cells_of_numbers, column_of, value_text_of
from fairkit_onnx.structure.ensemble import TWICE
from fairkit_onnx.structure.pieces import EncodedRows, keys_of, middle, numbers_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_onnx.structure.ensemble import Ensemble
    from fairkit_onnx.structure.pieces import Encode, Matrix

MOST_CELLS = 20_000


def make_blocks(
    ensemble: Ensemble,
    source: Sequence[str | None],
    domains: Sequence[Numbers | Listed],
    encode: Encode,
    defaults: Mapping[str, Any],
    kinds: Mapping[str, type],
    pieces: Mapping[str, NDArray[np.float64]],
    apart: Collection[str] = (),
) -> tuple[list[Block], list[tuple[int, int]]]:
    """Cut the domain into cells that no test tells apart, and read each test as a set of cells."""
    of_column = {
        column: place for place, one in enumerate(domains)
        for column in (one.columns if isinstance(one, Listed) else (one.name,))
    }  # fmt: skip
    inner = np.flatnonzero(ensemble.mode > 0)
    feature = ensemble.feature[inner]
    bits = ensemble.threshold[inner].astype(np.float64).view(np.int64)
    keys = np.stack([feature, bits, ensemble.mode[inner], ensemble.missing[inner]], axis=1)
    tests, code = np.unique(keys, axis=0, return_inverse=True)
    code = code.reshape(-1)
    _, first = np.unique(code, return_index=True)
    nodes = inner[first]  # one node for each test
    numbers = [place for place, one in enumerate(domains) if isinstance(one, Numbers)]
    block_of = np.array([of_column.get(source[int(f)] or "", -1) for f in tests[:, 0]], dtype=np.int64)
    run = EncodedRows(encode, defaults)
    ends = _boundaries(ensemble, nodes, block_of, domains, run, kinds, pieces)
    blocks = [
        _number_block(one, ends[place], kinds[one.name]) if place in numbers else listed_block(one)  # type: ignore[arg-type]
        for place, one in enumerate(domains)
    ]
    truth = _truths(ensemble, nodes, block_of, blocks, run)
    for test, row in enumerate(truth):  # an equality is no cut: its block's boxes are sets of cells
        place = int(block_of[test])
        if place >= 0 and blocks[place].ordered and np.count_nonzero(row[1:] != row[:-1]) > 1:
            blocks[place] = replace(blocks[place], ordered=False)
    blocks, truth = _merged(blocks, block_of, truth, set(apart))
    sets = [sum(1 << place for place in np.flatnonzero(row).tolist()) for row in truth]
    found = [(-1, 0)] * len(ensemble.mode)
    for node, test in zip(inner.tolist(), code.tolist(), strict=True):
        block = int(block_of[test])
        # a constant feature: every box of any block goes to the one side
        found[node] = (block, sets[test]) if block >= 0 else (0, -1 if truth[test][0] else 0)
    return blocks, found


def _boundaries(
    ensemble: Ensemble,
    nodes: NDArray[np.int64],
    block_of: NDArray[np.int64],
    domains: Sequence[Numbers | Listed],
    run: EncodedRows,
    kinds: Mapping[str, type],
    pieces: Mapping[str, NDArray[np.float64]],
) -> dict[int, NDArray[np.float64]]:
    """Bisect, for every test and piece at once, the last number that goes to the side of the piece's lowest one."""
    ends: dict[int, NDArray[np.float64]] = {}
    low: list[NDArray[np.int64]] = []
    high, tests, owner, part = [], [], [], []
    for index, domain in enumerate(domains):
        if not isinstance(domain, Numbers):
            continue
        mine = np.flatnonzero(block_of == index)
        twice = mine[np.isin(ensemble.mode[nodes[mine]], TWICE)]
        tops = pieces[domain.name]
        lasts = keys_of(tops, kinds[domain.name], domain.whole)
        firsts = np.concatenate([keys_of(np.array([domain.low]), kinds[domain.name], domain.whole), lasts[:-1] + 1])
        some = np.concatenate([np.zeros(len(mine)), np.ones(len(twice)), np.full(len(twice), 2.0)])
        mine = np.concatenate([mine, twice, twice])
        part.append(np.repeat(some, len(tops)))
        tests.append(np.repeat(mine, len(tops)))
        owner.append(np.full(len(mine) * len(tops), index))
        low.append(np.tile(firsts, len(mine)))
        high.append(np.tile(lasts, len(mine)))
        ends[index] = tops
    if not tests:
        return ends
    mine, place_of, parts = np.concatenate(tests), np.concatenate(owner), np.concatenate(part)
    lowest, highest = np.concatenate(low), np.concatenate(high)

    def sides(order: NDArray[np.int64]) -> NDArray[np.bool_]:
        values = np.empty(len(order))
        for number in np.unique(place_of):
            one, here = domains[number], place_of == number
            assert isinstance(one, Numbers)  # noqa: S101 -- only these are bisected
            values[here] = numbers_of(order[here], kinds[one.name], one.whole)
        pairs, back = np.unique(np.stack([place_of.astype(float), values], axis=1), axis=0, return_inverse=True)
        changed = []
        for number in np.unique(place_of):
            rows = np.flatnonzero(pairs[:, 0] == number)
            changed.append((rows, domains[number].name, pairs[rows, 1]))
        matrix = run(len(pairs), changed)[back.reshape(-1)]
        return _sides(ensemble, nodes[mine], matrix, parts)

    if not len(mine):
        return ends
    start, end_side = sides(lowest), sides(highest)
    first, end = lowest.copy(), highest.copy()  # first is on the side of the lowest, end is not
    moving = start != end_side
    while (moving & (end - first > 1)).any():
        halfway = np.where(moving, middle(first, end), first)
        same = sides(halfway) == start
        first, end = np.where(moving & same, halfway, first), np.where(moving & ~same, halfway, end)
    for index, tops in ends.items():
        domain = domains[index]
        assert isinstance(domain, Numbers)  # noqa: S101 -- only these have ends
        here = moving & (place_of == index)
        cuts = numbers_of(np.unique(first[here]), kinds[domain.name], domain.whole)
        ends[index] = np.unique(np.concatenate([cuts, tops]))
    return ends


def _sides(
    ensemble: Ensemble, nodes: NDArray[np.int64], matrix: Matrix, parts: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Tell for each test, in its own row of the matrix, whether the row goes to `yes`.

    Where `parts` is 1, whether it is below the threshold, and where 2, whether it is at most that.
    """
    values = matrix[np.arange(len(nodes)), ensemble.feature[nodes]]
    passes = np.empty(len(nodes), dtype=np.bool_)
    for mode in np.unique(ensemble.mode[nodes]):
        here = np.flatnonzero(ensemble.mode[nodes] == mode)
        passes[here] = ensemble.compare(int(mode), values[here], ensemble.threshold[nodes[here]])
    passes |= np.isnan(values) & ensemble.missing[nodes]
    level = np.where(ensemble.mode[nodes] == TWICE[-1], np.trunc(values), values)
    passes = np.where(parts == 1, level < ensemble.threshold[nodes], passes)
    return np.where(parts == 2, level <= ensemble.threshold[nodes], passes)


def _number_block(domain: Numbers, ends: NDArray[np.float64], kind: type) -> Block:
    """Cells from above one end to the next; a value of each that is easy to read."""
    starts = np.concatenate([[-np.inf], ends[:-1]])
    shown = [
        _plain(max(start, domain.low), start >= domain.low, end, domain.whole)
        for start, end in zip(starts, ends, strict=True)
    ]
    return cells_of_numbers(domain, ends, np.array(shown), kind)


def _plain(low: float, beyond: bool, high: float, whole: bool) -> float:
    """Return the number with the fewest digits in [low, high], or in (low, high] if `beyond`."""
    if whole:
        first = low + 1 if beyond else low
        return float(np.floor((first + high) / 2))
    if beyond and float(np.nextafter(np.float32(low), np.float32(np.inf))) >= high:
        return high  # the one number
    middle = low / 2 + high / 2
    for digits in range(1, 18):
        value = float(f"{middle:.{digits}g}")
        # what is fed is rounded to float32: it must stay inside too
        rounded = float(np.float32(value))
        if all((low < v if beyond else low <= v) and v <= high for v in (value, rounded)):
            return value
    return high


def listed_block(domain: Listed) -> Block:
    """Return a cell for each of the listed values."""
    if not domain.values:
        raise DataError(f"the domain of {domain.name!r} is empty: no value was given")
    values = {
        column: column_of([value[place] for value in domain.values]) for place, column in enumerate(domain.columns)
    }
    members = {tuple(map(value_text_of, value)): place for place, value in enumerate(domain.values)}
    choices = tuple(domain.values[place] for place in members.values())
    return Block(
        name=domain.name, columns=domain.columns, ordered=False, values=values, members=members, choices=choices
    )


def _truths(
    ensemble: Ensemble, nodes: NDArray[np.int64], block_of: NDArray[np.int64], blocks: Sequence[Block], run: EncodedRows
) -> list[NDArray[np.bool_]]:
    """Tell for each test which cells of its block go to `yes`."""
    matrix, starts = _encoded(blocks, run)
    found = []
    for node, block in zip(nodes.tolist(), block_of.tolist(), strict=True):
        rows = slice(starts[block], starts[block + 1]) if block >= 0 else slice(0, 1)
        found.append(ensemble.goes_yes(node, matrix[rows, ensemble.feature[node]]))
    return found


def encode_rows(
    blocks: Sequence[Block], encode: Encode, defaults: Mapping[str, Any]
) -> tuple[Matrix, NDArray[np.int64]]:
    """Return the features of every block's cells, the other columns at their defaults, and where each block begins."""
    return _encoded(blocks, EncodedRows(encode, defaults))


def _encoded(blocks: Sequence[Block], run: EncodedRows) -> tuple[Matrix, NDArray[np.int64]]:
    starts = np.concatenate([[0], np.cumsum([block.size for block in blocks])]).astype(np.int64)
    changed = [
        (np.arange(start, start + block.size), column, block.values[column])
        for start, block in zip(starts, blocks, strict=False)
        for column in block.columns
    ]
    return run(int(starts[-1]), changed), starts


def _merged(
    blocks: Sequence[Block], block_of: NDArray[np.int64], truth: Sequence[NDArray[np.bool_]], apart: set[str]
) -> tuple[list[Block], list[NDArray[np.bool_]]]:
    """Merge the listed values that every test sends the same way."""
    made: list[Block] = []
    changed = list(truth)
    for place, block in enumerate(blocks):
        if block.ends is not None or apart & set(block.columns):
            made.append(block)
            continue
        mine = np.flatnonzero(block_of == place).tolist()
        pattern = np.stack([truth[test] for test in mine]).T if len(mine) else np.zeros((block.size, 1), dtype=bool)
        _, first, code = np.unique(pattern, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.argsort(order)[code.reshape(-1)]
        first = first[order]
        for test in mine:
            changed[test] = truth[test][first]
        values = {name: values[first] for name, values in block.values.items()}
        members = {key: int(rank[cell]) for key, cell in block.members.items()}
        made.append(replace(block, values=values, members=members))
    return made, changed
