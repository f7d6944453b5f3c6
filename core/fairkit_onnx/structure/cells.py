"""From thresholds on encoded features to cells of raw columns: found by running the graph's own encoders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import value_text
from fairkit.errors import DataError, ModelError
from fairkit.support.lazy_dataclass import dataclass, field, replace
from fairkit_onnx.structure.ensemble import TWICE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_onnx.structure.ensemble import Ensemble
    from fairkit_onnx.structure.monotone import Condition

    Matrix = NDArray[Any]
    Encode = Callable[[Mapping[str, NDArray[Any]]], Matrix]
    Keys = NDArray[np.int64]
    Columns = Mapping[str, NDArray[Any]]


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
        column: index for index, domain in enumerate(domains)
        for column in (domain.columns if isinstance(domain, Listed) else (domain.name,))
    }  # fmt: skip
    inner = np.flatnonzero(ensemble.mode > 0)
    feature = ensemble.feature[inner]
    bits = ensemble.threshold[inner].astype(np.float64).view(np.int64)
    keys = np.stack([feature, bits, ensemble.mode[inner], ensemble.missing[inner]], axis=1)
    tests, code = np.unique(keys, axis=0, return_inverse=True)
    code = code.reshape(-1)
    _, first = np.unique(code, return_index=True)
    nodes = inner[first]  # one node for each test
    numbers = [index for index, domain in enumerate(domains) if isinstance(domain, Numbers)]
    block_of = np.array([of_column.get(source[int(f)] or "", -1) for f in tests[:, 0]], dtype=np.int64)
    run = EncodedRows(encode, defaults)
    ends = _boundaries(ensemble, nodes, block_of, domains, run, kinds, pieces)
    blocks = [
        _number_block(domain, ends[index], kinds[domain.name]) if index in numbers else listed_block(domain)  # type: ignore[arg-type]
        for index, domain in enumerate(domains)
    ]
    truth = _truths(ensemble, nodes, block_of, blocks, run)
    for test, row in enumerate(truth):  # an equality is no cut: its block's boxes are sets of cells
        place = int(block_of[test])
        if place >= 0 and blocks[place].ordered and np.count_nonzero(row[1:] != row[:-1]) > 1:
            blocks[place] = replace(blocks[place], ordered=False)
    blocks, truth = _merged(blocks, block_of, truth, set(apart))
    sets = [sum(1 << index for index in np.flatnonzero(row).tolist()) for row in truth]
    pairs = [(-1, 0)] * len(ensemble.mode)
    for node, test in zip(inner.tolist(), code.tolist(), strict=True):
        block = int(block_of[test])
        # a constant feature: every box of any block goes to the one side
        pairs[node] = (block, sets[test]) if block >= 0 else (0, -1 if truth[test][0] else 0)
    return blocks, pairs


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
        column: column_of([value[index] for value in domain.values]) for index, column in enumerate(domain.columns)
    }
    members = {tuple(map(value_text_of, value)): index for index, value in enumerate(domain.values)}
    choices = tuple(domain.values[member] for member in members.values())
    return Block(
        name=domain.name, columns=domain.columns, ordered=False, values=values, members=members, choices=choices
    )


def _truths(
    ensemble: Ensemble, nodes: NDArray[np.int64], block_of: NDArray[np.int64], blocks: Sequence[Block], run: EncodedRows
) -> list[NDArray[np.bool_]]:
    """Tell for each test which cells of its block go to `yes`."""
    matrix, starts = _encoded(blocks, run)
    result = []
    for node, block in zip(nodes.tolist(), block_of.tolist(), strict=True):
        rows = slice(starts[block], starts[block + 1]) if block >= 0 else slice(0, 1)
        result.append(ensemble.goes_yes(node, matrix[rows, ensemble.feature[node]]))
    return result


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
    for index, block in enumerate(blocks):
        if block.ends is not None or apart & set(block.columns):
            made.append(block)
            continue
        mine = np.flatnonzero(block_of == index).tolist()
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


# Columns of numbers, cut into pieces on which everything that a graph makes of them keeps their order.


MOST_PIECES = 10_000


class EncodedRows:
    """Encodes rows in which one block differs from the defaults."""

    def __init__(self, encode: Encode, defaults: Mapping[str, Any]) -> None:
        self._encode, self._defaults = encode, defaults

    def __call__(self, rows: int, changed: Sequence[tuple[NDArray[np.int64], str, NDArray[Any]]]) -> Matrix:
        """Return the features of `rows` rows; of some, by their places, a column has other values."""
        columns: dict[str, NDArray[Any]] = {}
        for name, value in self._defaults.items():
            text = isinstance(value, str) or value is None
            columns[name] = np.full(rows, value, dtype=object if text else type(value))
        for places, name, values in changed:
            if columns[name].dtype.kind not in "Of" and values.dtype.kind == "f":
                columns[name] = columns[name].astype(np.float64)
            columns[name][places] = values
        return self._encode(columns)


def keys_of(values: NDArray[np.float64], kind: type, whole: bool) -> Keys:
    """Number the values of a kind, so that the next value has the next number."""
    if whole:
        return values.astype(np.int64)
    integer = np.int32 if kind is np.float32 else np.int64
    bits: NDArray[Any] = values.astype(kind)
    raw = bits.view(integer).astype(np.int64)
    return np.where(raw < 0, np.int64(np.iinfo(integer).min) - raw, raw)


def numbers_of(keys: Keys, kind: type, whole: bool) -> NDArray[np.float64]:
    """Return the values with these numbers."""
    if whole:
        return keys.astype(np.float64)
    integer = np.int32 if kind is np.float32 else np.int64
    least = np.int64(np.iinfo(integer).min)
    return np.where(keys < 0, least - keys, keys).astype(integer).view(kind).astype(np.float64)


def middle(first: Keys, last: Keys) -> Keys:
    """Return the key halfway between two, without overflow."""
    return first // 2 + last // 2 + (first % 2 + last % 2) // 2


def check_ends(domain: Numbers) -> None:
    """Refuse a domain of numbers that is empty or infinite."""
    if not np.isfinite([domain.low, domain.high]).all():
        raise DataError(f"the domain of {domain.name!r} goes from {domain.low} to {domain.high}: give finite ends")
    if not domain.low <= domain.high:
        raise DataError(f"the domain of {domain.name!r} is empty: {domain.low:g} to {domain.high:g}")


def pieces_of(
    domains: Sequence[Numbers | Listed],
    conditions: Sequence[Condition],
    encoding: Callable[[str], Encode],
    defaults: Mapping[str, Any],
    kinds: Mapping[str, type],
) -> dict[str, NDArray[np.float64]]:
    """Cut each column of numbers where an operator may turn its order, and check that it keeps it between the cuts."""
    numbers = {domain.name: domain for domain in domains if isinstance(domain, Numbers)}
    pieces: dict[str, _Pieces] = {}
    for name, number in numbers.items():
        check_ends(number)
        pieces[name] = _Pieces(number, kinds[name])
    for condition in conditions:
        mine = [(index, name) for index, name in enumerate(condition.columns) if name in numbers]
        if not mine:
            continue
        run = EncodedRows(encoding(condition.tensor), defaults)
        for start, name in mine:
            pieces[name or ""].meet(condition, start, run)
    return {name: some.tops for name, some in pieces.items()}


class _Pieces:
    """The pieces of a column, by the keys of their ends."""

    def __init__(self, domain: Numbers, kind: type) -> None:
        self.domain, self.kind = domain, kind
        ends = keys_of(np.array([domain.low, domain.high]), kind, domain.whole)
        self.first, self.last = ends[:1], ends[1:]

    @property
    def tops(self) -> NDArray[np.float64]:
        return numbers_of(self.last, self.kind, self.domain.whole)

    def meet(self, condition: Condition, column: int, run: EncodedRows) -> None:
        """Cut as a condition asks, and check the rest of it at the ends: between them the order is kept."""

        def values(keys: Keys) -> NDArray[np.float64]:
            some = numbers_of(keys, self.kind, self.domain.whole)
            return np.asarray(run(len(keys), [(np.arange(len(keys)), self.domain.name, some)])[:, column], np.float64)

        for cut in condition.cuts:
            for below in (np.less, np.less_equal):
                self._split(lambda keys, cut=cut, below=below: below(values(keys), cut))  # type: ignore[misc]
        self._check(condition, values(self.first), values(self.last))

    def _split(self, side: Callable[[Keys], NDArray[np.bool_]]) -> None:
        start = side(self.first)
        here = np.flatnonzero(start != side(self.last))
        if not len(here):
            return
        low, high, start = self.first[here].copy(), self.last[here].copy(), start[here]
        while (high - low > 1).any():
            halfway = middle(low, high)
            same = side(halfway) == start
            low, high = np.where(same, halfway, low), np.where(same, high, halfway)
        self.first = np.sort(np.concatenate([self.first, high]))
        self.last = np.sort(np.concatenate([self.last, low]))
        if len(self.first) > MOST_PIECES:
            raise ModelError(f"column {self.domain.name!r} falls into more than {MOST_PIECES:,} pieces")

    def _check(self, condition: Condition, first: NDArray[np.float64], last: NDArray[np.float64]) -> None:
        both = np.stack([first, last])
        gone = np.isnan(both)
        why = ""
        if (gone[0] != gone[1]).any():
            why = "gives no number for some of its values alone"
        elif condition.finite and np.isinf(both).any():
            why = "reads an infinite number"
        elif condition.nonzero and ((both == 0).any() or (np.sign(first) != np.sign(last))[~gone[0]].any()):
            why = "divides by zero"
        elif (
            condition.inside is not None
            and not (gone | ((both >= condition.inside[0]) & (both <= condition.inside[1]))).all()
        ):
            why = f"reads numbers beyond {condition.inside[0]:g} to {condition.inside[1]:g}"
        if why:
            name = self.domain.name
            raise ModelError(
                f"the node {condition.node} {why} where column {name!r} goes from {self.domain.low:g} to "
                f"{self.domain.high:g}; say with all-inputs.domain.{name}=LOW:HIGH which numbers are meant"
            )


# The inputs that a statement is about: blocks of columns, and cells in which no test tells values apart.


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The numbers from `low` to `high`, whole ones only if `whole`, and a missing one if `missing`."""

    name: str
    low: float
    high: float
    whole: bool = False
    missing: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"low": self.low, "high": self.high, "whole": self.whole, "missing": self.missing}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Columns that take one of a list of values together: one column, a one-hot group, or the columns that change."""

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]

    @property
    def name(self) -> str:
        """The columns, joined."""
        return "+".join(self.columns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Columns that take their values together, as cells."""

    name: str  # what it is called
    columns: tuple[str, ...]  # the raw columns
    ordered: bool  # whether the cells are intervals of numbers, in order
    values: Mapping[str, NDArray[Any]]  # by column, one raw value of each cell, shape [cells]
    ends: NDArray[np.float64] | None = None
    low: float = 0.0  # the smallest number; whether only whole ones are meant; whether the graph takes them as float32
    whole: bool = False
    single: bool = False
    members: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    choices: tuple[tuple[Any, ...], ...] = ()  # the raw values behind `members`, in their order
    points: bool = False  # whether a cell of numbers is its end alone, and not all numbers from above the former end

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.values[self.columns[0]])

    @property
    def intervals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The smallest and the largest number of each cell of numbers, shape [cells] without the missing one."""
        assert self.ends is not None  # noqa: S101 -- a block of numbers
        ends = self.ends[~np.isnan(self.ends)]
        if self.whole:
            above = ends[:-1] + 1
        elif self.single:
            above = np.nextafter(ends[:-1].astype(np.float32), np.float32(np.inf)).astype(np.float64)
        else:
            above = np.nextafter(ends[:-1], np.inf)
        return np.concatenate([[self.low], above]), ends

    def cells_of(self, columns: Columns) -> NDArray[np.int64]:
        """Return the cell of each row, shape [n]; -1 where it has none."""
        if self.ends is not None:
            raw = np.asarray(columns[self.columns[0]], dtype=np.float64)
            raw = raw.astype(np.float32).astype(np.float64) if self.single else raw
            ends = self.ends[~np.isnan(self.ends)]
            index = np.searchsorted(ends, raw, side="left")
            out = np.isnan(raw) | (raw < self.low) | (index >= len(ends))
            missing = len(ends) if len(ends) < len(self.ends) else -1
            return np.where(np.isnan(raw), missing, np.where(out, -1, index)).astype(np.int64)
        keys = zip(*(columns[name].tolist() for name in self.columns), strict=True)
        return np.array([self.members.get(tuple(map(value_text_of, key)), -1) for key in keys], dtype=np.int64)


def value_text_of(value: Any) -> str:
    """Return a raw value as text: a missing one is empty, whole numbers have no fraction."""
    if value is None or value != value:  # noqa: PLR0124 -- NaN
        return ""
    return value_text(value)


def column_of(values: Sequence[Any]) -> NDArray[Any]:
    """Return raw values as a column: as objects where one of them is text or missing."""
    text = any(isinstance(value, str) or value is None for value in values)
    return np.array(values, dtype=object if text else None)


def one_hot_groups(columns: Columns, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Find groups of 0-1 columns with a common beginning of which each row has exactly one."""
    flags = {}
    for name in names:
        values = np.asarray(columns[name])
        if values.dtype.kind in "biuf" and np.isin(values, (0, 1)).all() and len(values):
            flags[name] = values.astype(np.float64)
    groups: list[tuple[str, ...]] = []
    taken: set[str] = set()
    for mark in ("=", "_"):
        stems: dict[str, list[str]] = {}
        for name in flags:
            if mark in name and name not in taken:
                stems.setdefault(name.rsplit(mark, 1)[0] if mark == "_" else name.split(mark, 1)[0], []).append(name)
        for stem, members in stems.items():
            del stem
            if len(members) > 1 and (np.sum([flags[name] for name in members], axis=0) == 1).all():
                groups.append(tuple(members))
                taken |= set(members)
    return groups


def numbers_block(domain: Numbers, some: NDArray[np.float64], kind: type, *, points: bool = False) -> Block:
    """Return the block of a column of numbers whose cells end at some of them, and at the largest."""
    if kind is np.float32 and not domain.whole:
        some = some.astype(np.float32).astype(np.float64)
    if points:
        ends = np.unique(np.clip(some, domain.low, domain.high))
    else:
        ends = np.unique(np.append(some[(some >= domain.low) & (some <= domain.high)], domain.high))
    return cells_of_numbers(domain, ends, ends, kind, points=points)


def cells_of_numbers(
    domain: Numbers, ends: NDArray[np.float64], values: NDArray[np.float64], kind: type, *, points: bool = False
) -> Block:
    """Return the block of a column of numbers by the ends of its cells, with a value of each; see `numbers_block`."""
    missing = [np.nan] if domain.missing else []
    single = kind is np.float32 and not domain.whole
    return Block(
        name=domain.name,
        columns=(domain.name,),
        ordered=not domain.missing,
        values={domain.name: np.append(values, missing)},
        ends=np.append(ends, missing),
        low=float(np.float32(domain.low)) if single else domain.low,
        whole=domain.whole,
        single=single,
        points=points,
    )
