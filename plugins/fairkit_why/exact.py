"""The exact attribution of a difference of means: Shapley values over all pairs of rows, of trees and linear models.

Players are raw columns, or several of them together. For a group a and a reference b, ``v(S)`` is the mean over all
pairs (x of a, z of b) of ``f(x_S, z_-S)``, f the sum before the link; the values add up to ``mean_a f - mean_b f``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.errors import ModelError, ParameterError
from fairkit_onnx.structure.trees import TreeModel
from fairkit_why import kernels
from fairkit_why.asks import sources_of, structure_of
from fairkit_why.fringes import MOST_COLUMNS, MOST_STEPS, cut_trees

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.models.scorer import Scorer
    from fairkit_onnx.structure.encoded import Encoded
    from fairkit_onnx.structure.linear import LinearModel

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Columns = Mapping[str, NDArray[Any]]

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
    number = {column: place for place, columns in enumerate(players) for column in columns}
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
        for place in range(self._players):
            out[place] = terms[:, self._player == place].sum(axis=1)
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
        one = {name: values[:1] for name, values in rows.items()}
        fringes = cut_trees(model.ensemble, player, model.encoding(doubles=True)(one))
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
