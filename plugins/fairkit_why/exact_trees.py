"""Trees cut into fringes: subtrees small enough that one key of a row tells all their leaves.

A key's first bits say for each column on the path above the subtree whether the row meets all tests of that column;
the others are the answers to the subtree's own tests. A leaf's game depends on a row only through the pattern of the
columns on the leaf's path whose tests the row meets, which is a function of the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.errors import ModelError, ParameterError
from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.structure.trees import TreeModel
from fairkit_why import kernels
from fairkit_why.kernels import code_numbers
from fairkit_why.permutation_walks import sources_of, structure_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.models.scorer import Scorer
    from fairkit_onnx.structure.encoded import Encoded
    from fairkit_onnx.structure.ensemble import Ensemble
    from fairkit_onnx.structure.linear import LinearModel

    Ints = NDArray[np.int64]
    Codes = NDArray[np.uint16]
    Array = NDArray[np.float64]
    Columns = Mapping[str, NDArray[Any]]


BITS = 10
"""A fringe has at most so many bits, unless a leaf alone needs more."""
WORD = 63
"""Codes of a set in one word."""
MOST_COLUMNS = 20
"""A leaf with more columns on its path has no exact attribution."""
MOST_STEPS = 1e11
"""Steps of the tables from which the exact attribution is refused (minutes)."""

_EQUAL = ("BRANCH_EQ", "BRANCH_NEQ", "EQ_WHOLE")
_TURNED = ("BRANCH_GTE", "BRANCH_GT", "BRANCH_NEQ")


@dataclass(frozen=True, slots=True)
class Coding:
    """How features become codes of which every test asks ``code <= cut``, or whether they are in a set."""

    feature: list[int]  # the feature, by coded column
    low: list[bool]  # whether NaN goes with the small numbers
    cuts: list[NDArray[np.float64]]
    equal: list[str]  # by coded column, the mode of its equalities; empty where tests are inequalities
    masks: list[int]  # words with the codes of each set as bits

    def code(self, matrix: NDArray[Any], out: Codes) -> None:
        """Write the codes of rows, shape [columns, n], from their features, shape [n, d]."""
        for index, feature in enumerate(self.feature):
            values, cuts = matrix[:, feature].astype(np.float64), self.cuts[index]
            if self.equal[index] == "EQ_WHOLE":
                values = np.trunc(values)
            last = len(cuts) + 1 if self.equal[index] else 0 if self.low[index] else len(cuts)
            code_numbers(values, cuts, last, out[index])
            if self.equal[index]:
                code = np.minimum(out[index], len(cuts) - 1)
                out[index] = np.where((cuts[code] == values) | np.isnan(values), out[index], len(cuts))

    def holds(self, column: int, cut: int, code: int) -> bool:
        """Tell whether a code meets a test."""
        if not self.equal[column]:
            return code <= cut
        return bool(self.masks[cut + code // WORD] >> (code % WORD) & 1)


@dataclass(frozen=True, slots=True)
class Fringes:
    """The fringes of an ensemble as the arrays that the loops read."""

    arrays: tuple[Any, ...]
    leaves: tuple[Any, ...]
    names: Ints  # the ensemble's players that the fringes' players are
    steps: float  # what the tables of one group cost, in steps; infinite where a leaf has too many columns
    coding: Coding  # of the features

    @property
    def count(self) -> int:
        """How many fringes there are."""
        return len(self.arrays[2])

    def chunks(self, room: int) -> list[tuple[int, int]]:
        """Cut the fringes into runs whose histograms and tables, of two groups, take at most `room` bytes."""
        size = 16 * (1 << self.arrays[3]) * (1 + self.arrays[4])
        result, first = [], 0
        while first < self.count:
            last = first + max(1, int(np.searchsorted(np.cumsum(size[first:]), room, side="right")))
            result.append((first, last))
            first = last
        return result


def _tests(ensemble: Ensemble) -> tuple[Coding, Ints, Ints, Ints, Ints]:
    """Return the coding; by node its coded column, its cut (or where its set begins), and where it holds and fails."""
    from fairkit_onnx.structure.ensemble import MODES

    size = len(ensemble.mode)
    column, cut = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.int64)
    modes = np.array(MODES)[ensemble.mode]
    turned = np.isin(modes, _TURNED)
    threshold = ensemble.threshold.astype(np.float64)
    strict = np.isin(modes, ("BRANCH_LT", "BRANCH_GTE"))  # x < t is x <= the number before t
    threshold = np.where(strict, np.nextafter(threshold, -np.inf), threshold)
    low = np.where(turned, ~ensemble.missing, ensemble.missing)
    holds, fails = np.where(turned, ensemble.no, ensemble.yes), np.where(turned, ensemble.yes, ensemble.no)
    inner = np.flatnonzero(ensemble.mode > 0)
    coding = Coding([], [], [], [], [])
    numbers = inner[~np.isin(modes[inner], _EQUAL)]
    pairs = zip(ensemble.feature[numbers].tolist(), low[numbers].tolist(), strict=True)
    for feature, to_low in sorted(set(pairs)):
        mine = numbers[(ensemble.feature[numbers] == feature) & (low[numbers] == to_low)]
        cuts, code = np.unique(threshold[mine], return_inverse=True)
        column[mine], cut[mine] = len(coding.feature), code.reshape(-1)
        _add(coding, feature, to_low, cuts, "")
    sets = inner[np.isin(modes[inner], _EQUAL)]
    kinds = np.where(modes == "EQ_WHOLE", "EQ_WHOLE", "BRANCH_EQ")
    for feature, kind in sorted(set(zip(ensemble.feature[sets].tolist(), kinds[sets].tolist(), strict=True))):
        mine = sets[(ensemble.feature[sets] == feature) & (kinds[sets] == kind)]
        cuts = np.unique(threshold[mine])
        for node in mine.tolist():
            chain = _chain(ensemble, modes, node)
            # NaN differs from every number; a test that sends it to `yes` has it in its set, `!=` never has
            codes = [*np.searchsorted(cuts, threshold[list(chain)]).tolist()]
            codes += [len(cuts) + 1] if ensemble.missing[list(chain)].any() and not turned[node] else []
            column[node], cut[node] = len(coding.feature), len(coding.masks)
            bits = sum(1 << code for code in set(codes))
            word_range = range((len(cuts) + 1) // WORD + 1)
            coding.masks.extend(bits >> (WORD * word) & ((1 << WORD) - 1) for word in word_range)
            if not turned[node]:
                fails[node] = ensemble.no[chain[-1]]
        _add(coding, feature, False, cuts, kind)
    return coding, column, cut, holds, fails


def _add(coding: Coding, feature: int, low: bool, cuts: NDArray[np.float64], equal: str) -> None:
    coding.feature.append(feature)
    coding.low.append(low)
    coding.cuts.append(cuts)
    coding.equal.append(equal)


def _chain(ensemble: Ensemble, modes: NDArray[np.str_], node: int) -> tuple[int, ...]:
    """Return the tests that are one test of a set: each is what follows where the one before does not hold."""
    chain = [node]
    while True:
        following = int(ensemble.no[chain[-1]])
        same = modes[following] == modes[node] != "BRANCH_NEQ" and ensemble.yes[following] == ensemble.yes[node]
        if not same or ensemble.feature[following] != ensemble.feature[node]:
            return tuple(chain)
        chain.append(following)


class _Cutter:
    """Cuts the trees, one after the other."""

    def __init__(self, ensemble: Ensemble, player: Ints, fixed: NDArray[Any], bits: int) -> None:
        self.ensemble, self.bits = ensemble, bits
        self.coding, self.column, self.cut, self.holds, self.fails = _tests(ensemble)
        feature = np.array(self.coding.feature, dtype=np.int64)
        self.player = player[feature] if len(feature) else feature
        self.codes = np.zeros((len(feature), 1), dtype=np.uint16)
        self.coding.code(fixed, self.codes)
        self.begin: list[int] = [0]
        self.program: list[tuple[int, int, int, int]] = []
        self.path: list[int] = []
        self.width: list[int] = []
        self.players: list[int] = []
        self.from_leaf: list[int] = [0]
        self.own: list[int] = [0]
        self.value: list[float] = []
        self.leaf_begin: list[int] = [0]
        self.mask: list[int] = []
        self.wanted: list[int] = []
        self.local: list[int] = []
        self.names: list[int] = []
        self.steps = 0.0
        self.sizes: dict[int, int] = {}

    def sides(self, node: int) -> tuple[int, int]:
        """Return the nodes where a test holds and where it does not."""
        return int(self.holds[node]), int(self.fails[node])

    def kind(self, column: int, answer: int) -> int:
        """Return the kind of a test in a program: of inequalities 0, 1 and 2, of sets 3, 4 and 5."""
        return answer + (3 if self.coding.equal[column] else 0)

    def settled(self, node: int) -> int:
        """Go down tests of constants."""
        while self.ensemble.mode[node] > 0 and self.player[self.column[node]] < 0:
            column = int(self.column[node])
            has_code = self.coding.holds(column, int(self.cut[node]), int(self.codes[column, 0]))
            node = self.sides(node)[0 if has_code else 1]
        return node

    def tests_below(self, node: int) -> int:
        """Count the tests of a subtree; more than a fringe can have are not counted on."""
        if node not in self.sizes:
            waiting, count = [node], 0
            while waiting and count <= self.bits:
                at = self.settled(waiting.pop())
                if self.ensemble.mode[at] > 0:
                    count += 1
                    waiting += self.sides(at)
            self.sizes[node] = count
        return self.sizes[node]

    def tree(self, root: int) -> None:
        """Cut one tree."""
        waiting: list[tuple[int, tuple[tuple[int, int, int], ...]]] = [(root, ())]
        while waiting:
            node, path = waiting.pop()
            node = self.settled(node)
            columns = {int(self.player[column]) for column, _, _ in path}
            if self.ensemble.mode[node] == 0 or len(columns) + self.tests_below(node) <= self.bits:
                self.fringe(node, path, sorted(columns))
                continue
            column, cut = int(self.column[node]), int(self.cut[node])
            low, high = self.sides(node)
            waiting += [(high, (*path, (column, cut, 0))), (low, (*path, (column, cut, 1)))]

    def fringe(self, root: int, path: tuple[tuple[int, int, int], ...], columns: list[int]) -> None:
        """Write a fringe, its tests and its leaves."""
        bit_of = {player: bit for bit, player in enumerate(columns)}
        for column, cut, kind in path:
            self.program.append((column, cut, self.kind(column, kind), bit_of[int(self.player[column])]))
        start = {player: (1 << bit, 1 << bit) for player, bit in bit_of.items()}
        used, waiting, bits = list(columns), [(root, start)], len(columns)
        while waiting:
            node, rules = waiting.pop()
            node = self.settled(node)
            if self.ensemble.mode[node] == 0:
                self.leaf(float(self.ensemble.value[node]), rules, used)
                continue
            column = int(self.column[node])
            player, bit = int(self.player[column]), 1 << bits
            self.program.append((column, int(self.cut[node]), self.kind(column, 2), bits))
            bits += 1
            if player not in used:
                used.append(player)
            mask, wanted = rules.get(player, (0, 0))
            low, high = self.sides(node)
            waiting.append((high, {**rules, player: (mask | bit, wanted)}))
            waiting.append((low, {**rules, player: (mask | bit, wanted | bit)}))
        if len(self.value) == self.from_leaf[-1]:  # nothing but a constant
            del self.program[self.begin[-1] :]
            return
        self.begin.append(len(self.program))
        self.path.append(len(columns))
        self.width.append(bits)
        self.players.append(len(used))
        self.from_leaf.append(len(self.value))
        self.names += used
        self.own.append(len(self.names))

    def leaf(self, value: float, rules: dict[int, tuple[int, int]], used: Sequence[int]) -> None:
        """Write a leaf."""
        k = len(rules)
        if k == 0 or value == 0.0:
            return
        self.value.append(value)
        for player, (mask, wanted) in sorted(rules.items()):
            self.mask.append(mask)
            self.wanted.append(wanted)
            self.local.append(used.index(player))
        self.leaf_begin.append(len(self.mask))
        self.steps += k**2 * 2.0**k / 2 if k <= MOST_COLUMNS else np.inf


def cut_trees(ensemble: Ensemble, player: Ints, fixed: NDArray[Any], bits: int = BITS) -> Fringes:
    """Cut an ensemble into fringes."""
    cutter = _Cutter(ensemble, player, fixed, bits)
    for root in ensemble.roots.tolist():
        cutter.tree(root)
    arrays = (
        _whole(cutter.begin),
        _whole(cutter.program).reshape(-1, 4),
        *map(_whole, (cutter.path, cutter.width, cutter.players, cutter.from_leaf, cutter.own)),
        _whole(cutter.coding.masks or [0]),
    )
    columns = map(_whole, (cutter.leaf_begin, cutter.mask, cutter.wanted, cutter.local))
    leaves = (np.array(cutter.value, dtype=np.float64), *columns)
    return Fringes(arrays, leaves, _whole(cutter.names), cutter.steps, cutter.coding)


def _whole(numbers: Sequence[Any]) -> Ints:
    return np.array(numbers, dtype=np.int64)


# The exact attribution of a difference of means: Shapley values over all pairs of rows, of trees and linear models.


ROOM = 48 << 20
"""Bytes of histograms and tables at a time."""
ENCODED = 65_536
"""Rows that are encoded at a time."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """How a mean difference divides among players."""

    values: Array  # by player, shape [P]; they add up to the difference
    rows: tuple[Array, Array]


class ExactScore(Protocol):
    """A score whose attribution is computed, not sampled."""

    def prepare(self, columns: Columns) -> Any:
        """Return rows in the form that `attribution` takes; rows are along the last axis."""
        ...

    def attribution(
        self, a: Any, b: Any, weights: tuple[Array | None, Array | None], chosen: tuple[Ints, Ints]
    ) -> Attribution:
        """Divide ``mean_a f - mean_b f``; rows' own values of the chosen rows of either group alone."""
        ...


def read_exact(scorer: Scorer, rows: Columns, players: Sequence[Sequence[str]]) -> ExactScore | str:
    """Read a model whose score before the link is a sum of trees or of columns; else a sentence that says why not."""
    try:
        model = structure_of(scorer, rows)
        if model is None:
            return f"{scorer.info.name} is no ONNX file that holds a sum of trees or a linear model."
        source = sources_of(model, rows)
    except (ModelError, ParameterError) as error:
        return f"{error}."
    few = {name: values[:3] for name, values in rows.items()}
    number = {column: index for index, columns in enumerate(players) for column in columns}
    player = np.array([-1 if name is None else number[name] for name in source], dtype=np.int64)
    return _TreeScore.of(model, player, few, len(players)) if isinstance(model, TreeModel) else _LinearScore(
        model, player, len(players)
    )  # fmt: skip


def _mean(values: Array, weights: Array | None) -> Array:
    return np.asarray(values.mean(axis=0) if weights is None else weights @ values / weights.sum())


def _direction(model: Encoded, low: float, high: float) -> float:
    """Return 1 where larger sums are more favorable, else -1; a class's own sum favors it."""
    if model.scorer.task == "multiclass":
        return 1.0
    said = model.tail(np.array([low, high]))
    values = [v for v in (said.score, said.decision) if v is not None and v[0] != v[1]]
    return -1.0 if values and values[0][1] < values[0][0] else 1.0


class _LinearScore:
    """Each column adds a function of its own: its value is the difference of that function's means."""

    def __init__(self, model: LinearModel, player: Ints, players: int) -> None:
        self._encode, self._players = model.encoding(), players
        self._weights = _direction(model, 0.0, 1.0) * model.weights
        self._player = player[: len(model.weights)]

    def prepare(self, columns: Columns) -> Array:
        """Return each player's term of the sum, shape [P, n]."""
        terms = self._encode(columns)[:, : len(self._weights)].astype(np.float64) * self._weights
        out = np.zeros((self._players, len(terms)))
        for index in range(self._players):
            out[index] = terms[:, self._player == index].sum(axis=1)
        return out

    def attribution(
        self, a: Array, b: Array, weights: tuple[Array | None, Array | None], chosen: tuple[Ints, Ints]
    ) -> Attribution:
        """See `ExactScore.attribution`."""
        first, second = _mean(a.T, weights[0]), _mean(b.T, weights[1])
        return Attribution(first - second, (a.T[chosen[0]] - second, first - b.T[chosen[1]]))


class _TreeScore:
    """A sum of trees, cut into fringes."""

    def __init__(self, model: TreeModel, fringes: Any, sign: float, players: int) -> None:
        self._model, self._fringes, self._sign, self._players = model, fringes, sign, players
        self._encode = model.encoding(doubles=True)
        widest = int(np.diff(fringes.leaves[1]).max(initial=1))
        self._rules = np.zeros((widest + 1, 2, (widest + 1) // 2))
        for k in range(1, widest + 1):
            nodes, weights = np.polynomial.legendre.leggauss((k + 1) // 2)
            self._rules[k, 0, : len(nodes)], self._rules[k, 1, : len(nodes)] = (nodes + 1) / 2, weights / 2

    @classmethod
    def of(cls, model: TreeModel, player: Ints, rows: Columns, players: int) -> _TreeScore | str:
        """Cut the trees; a sentence where their leaves have too many columns."""
        first_row = {name: values[:1] for name, values in rows.items()}
        fringes = cut_trees(model.ensemble, player, model.encoding(doubles=True)(first_row))
        if max(map(len, fringes.coding.cuts), default=0) >= np.iinfo(np.uint16).max:
            return "A column of the trees has more than 65,534 thresholds."
        if fringes.steps > MOST_STEPS:
            deep = f"a leaf's path has more than {MOST_COLUMNS} columns"
            cost = f"its exact attribution would take {fringes.steps:.1g} steps for each group"
            return f"The trees are deep: {cost if np.isfinite(fringes.steps) else deep}."
        return cls(model, fringes, _direction(model, *model.reach()), players)

    def prepare(self, columns: Columns) -> NDArray[np.uint16]:
        """Return the codes of rows, shape [coded columns, n]."""
        rows = len(next(iter(columns.values())))
        out = np.empty((len(self._fringes.coding.feature), rows), dtype=np.uint16)
        for start in range(0, rows, ENCODED):
            some = {name: values[start : start + ENCODED] for name, values in columns.items()}
            matrix = self._encode(some)
            self._fringes.coding.code(matrix, out[:, start : start + len(matrix)])
        return out

    def attribution(
        self,
        a: NDArray[np.uint16],
        b: NDArray[np.uint16],
        weights: tuple[Array | None, Array | None],
        chosen: tuple[Ints, Ints],
    ) -> Attribution:
        """See `ExactScore.attribution`."""
        fringes, groups = self._fringes, (a, b)
        every = [np.empty(0) if w is None else w for w in weights]
        mass = [float(g.shape[1]) if w is None else float(w.sum()) for g, w in zip(groups, weights, strict=True)]
        some = [np.ascontiguousarray(g[:, c]) for g, c in zip(groups, chosen, strict=True)]
        values = np.zeros(self._players)
        row_values = [np.zeros((self._players, len(c))) for c in chosen]
        for first, last in fringes.chunks(ROOM):
            size = 1 << fringes.arrays[3][first:last]
            offsets = np.concatenate([[0], np.cumsum(size)])
            table_at = np.concatenate([[0], np.cumsum(size * fringes.arrays[4][first:last])])
            hists = [np.zeros(offsets[-1]) for _ in groups]
            tables = np.empty(table_at[-1])
            for group, w, hist in zip(groups, every, hists, strict=True):
                kernels.count_keys(group, w, fringes.arrays, first, last, offsets, hist)
            for mine, opposite, sign in ((0, 1, 1.0), (1, 0, -1.0)):  # φ(x, z) = -φ(z, x)
                if mine and not len(chosen[1]):
                    continue
                kernels.make_tables(
                    hists[opposite], fringes.arrays, fringes.leaves, first, last, offsets, self._rules, table_at, tables
                )  # fmt: skip
                if not mine:
                    kernels.meet_tables(
                        hists[0], fringes.arrays, first, last, offsets, table_at, tables, fringes.names, values
                    )  # fmt: skip
                kernels.project(
                    some[mine], fringes.arrays, first, last, table_at, tables, fringes.names,
                    sign / mass[opposite], row_values[mine],
                )  # fmt: skip
        return Attribution(
            self._sign * values / (mass[0] * mass[1]), (self._sign * row_values[0].T, self._sign * row_values[1].T)
        )
