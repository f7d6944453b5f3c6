"""The search for a witness: inputs at the ends of cells, moved one column at a time to where an objective is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_all_inputs.bounds.networks.aims import objective, weights_of
from fairkit_onnx.structure.networks.layers import applied, gradient, output

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.networks.problem import NetworkProblem

    Floats = NDArray[np.float64]
    Cells = NDArray[np.int64]
    Tops = NDArray[np.bool_]

TRIES = 24
"""Cells of a block at which a climb looks, besides the neighbours."""
MANY = 2_000
"""Inputs that are drawn."""
FEW = 256
"""Climbs at most, from the best of them, which look at `COARSE` cells of a block."""
COARSE = 17
WORK = 2e10
"""Multiplications that climbs from drawn inputs may take, about, and those after them from moved ones."""
ROUNDS = 12
"""Rounds over all columns at most; a climb ends where none of its inputs gains."""
RESTARTS = 6
"""Times that the best inputs are moved in some columns and climbed from again, while the work allows it."""
BEST = 8
"""So many of the best inputs are climbed from again."""
MOVED = 0.3
"""The share of columns that is moved."""
LEAPS = 24
"""Steps along the gradient at most, of all columns at once."""
SHARES = (0.02, 0.1, 0.4, 1.0)
"""How far numbers move at a step, of the way to the end that the gradient asks for."""
SWITCHES = (0, 1, 4, 1_000)
"""How many listed columns take another value at a step, those that gain most."""
FLAT = 0.05
"""Sums that are so small may change their sign when an input is moved to the best of its linear piece."""


class Climber:
    """The best input that was seen for one pair of values."""

    def __init__(
        self,
        problem: NetworkProblem,
        kind: int,
        pair: tuple[int, int],
        costs: Mapping[int, Floats],
        near: float,
        shown: Sequence[Floats] | None,
        best: float,
    ) -> None:
        self.problem, self.kind, self.pair = problem, kind, pair
        self.costs, self.near, self.shown, self.best = costs, near, shown, best
        self.sides = problem.sides(pair)
        self.point: tuple[int, ...] = ()
        self.top = np.zeros(len(problem.layout.sizes), dtype=np.bool_)
        self.values: dict[str, Any] = {}

    def worth(self, chosen: Cells, top: Tops) -> Floats:
        """Return the objective of inputs given by cells and their ends, shape [n]; too far: minus infinity."""
        features = self._features(chosen, top)
        cost = sum((cost[chosen[:, block]] for block, cost in self.costs.items()), np.zeros(len(chosen)))
        first, second = (output(self.problem.layers, features + side) for side in self.sides)
        thresholds = self.problem.thresholds_at(self.pair, chosen)
        return np.where(cost <= self.near, objective(self.kind, first, second, thresholds), -np.inf)

    def look(self, chosen: Cells, top: Tops) -> bool:
        """Look at inputs, and climb from the best where it is better than all before; tell whether it is."""
        worth = self.worth(chosen, top)
        place = int(worth.argmax())
        if worth[place] <= self.best:
            return False
        self._keep(worth[place], chosen[place], top[place])
        self.climb(chosen[[place]], top[[place]])
        return True

    def signs(self) -> NDArray[np.int8]:
        """Return the signs of both runs' sums at the best input, 0 near a sign's change, shape [1, 2 · units]."""
        chosen = np.array(self.point, dtype=np.int64)[None, :]
        signs: tuple[list[Floats], list[Floats]] = ([], [])
        for side, some in zip(self.sides, signs, strict=True):
            values = self._features(chosen, self.top[None, :]) + side
            for layer in self.problem.layers[:-1]:
                sums = values @ layer.weights.T + layer.bias
                small = FLAT * (1.0 + np.abs(sums).mean())
                some.append(np.where(np.abs(sums) < small, 0.0, np.sign(sums)))
                values = applied(layer.kind, sums)
        return np.concatenate([*signs[0], *signs[1]], axis=1).astype(np.int8)

    def scatter(self, enough: float) -> None:
        """Climb from the best of many inputs, the same ones always, and again from where that ended, moved a little."""
        rng = np.random.default_rng(0)
        sizes = self.problem.layout.sizes
        chosen = rng.integers(0, sizes, size=(MANY, len(sizes)))
        top = rng.random(chosen.shape) < 0.5
        best = np.argsort(-self.worth(chosen, top), kind="stable")
        one = sum(layer.weights.size for layer in self.problem.layers) * 4.0 * len(sizes) * 3
        some = best[: int(np.clip(WORK / (one * COARSE), 4, FEW))]
        chosen, top, reached = self.climb(*self.leap(chosen[some], top[some]), enough, tries=COARSE)
        for again in range(1 + int(np.clip(WORK / (one * TRIES * BEST), 0, RESTARTS))):
            if reached.max() > enough:
                break
            order = np.argsort(-reached, kind="stable")[:BEST]
            moved, ends = chosen[order], top[order]
            if again:
                others = rng.random(moved.shape) < MOVED
                moved = np.where(others, rng.integers(0, sizes, moved.shape), moved)
                ends = np.where(others, rng.random(moved.shape) < 0.5, ends)
                moved, ends = self.leap(moved, ends)
            new = self.climb(moved, ends, enough)
            chosen, top, reached = (
                np.concatenate([old[order], more]) for old, more in zip((chosen, top, reached), new, strict=True)
            )

    def leap(self, chosen: Cells, top: Tops) -> tuple[Cells, Tops]:
        """Move all blocks of points at once along the gradient, shape [S, blocks], while that gains."""
        chosen, top = chosen.copy(), top.copy()
        reached, moving = self.worth(chosen, top), np.arange(len(chosen))
        for _ in range(LEAPS):
            many, ends = self._steps(chosen[moving], top[moving])
            worth = self.worth(many, ends).reshape(len(moving), -1)
            place = worth.argmax(axis=1)
            rows = np.arange(len(moving))
            better = worth[rows, place] > reached[moving] + 1e-9
            if not better.any():
                break
            at = (rows * worth.shape[1] + place)[better]
            moving = moving[better]
            chosen[moving], top[moving], reached[moving] = many[at], ends[at], worth[better].max(axis=1)
        return chosen, top

    def _steps(self, chosen: Cells, top: Tops) -> tuple[Cells, Tops]:
        """Return the points that steps of each size lead to, point by point, shape [S · steps, blocks]."""
        cells, features = self.problem.cells, self._features(chosen, top)
        f, g = (output(self.problem.layers, features + side) for side in self.sides)
        rates = weights_of(self.kind, f, g, self.problem.thresholds_at(self.pair, chosen))
        one, other = (gradient(self.problem.layers, features + side) for side in self.sides)
        slope = rates[0][:, None] * one - rates[1][:, None] * other
        steps = len(SHARES) * len(SWITCHES)
        many, ends = np.repeat(chosen[:, None, :], steps, axis=1), np.repeat(top[:, None, :], steps, axis=1)
        share = np.repeat(SHARES, len(SWITCHES))
        for block in cells.ranges:
            mine, last = cells.features[block], int(self.problem.layout.sizes[block]) - 1
            rises = slope[:, mine] @ (cells.last[block][-1] - cells.first[block][0])
            far = np.where(rises > 0.0, last, 0)[:, None] - chosen[:, block, None]
            moved = np.rint(share * far).astype(np.int64)
            many[:, :, block] += np.where((moved == 0) & (share > 0.05), np.sign(far), moved)
            ends[:, :, block] = (rises > 0.0)[:, None]
        gains, targets = (
            np.zeros((len(chosen), len(cells.lists))),
            np.zeros((len(chosen), len(cells.lists)), np.int64),
        )
        for index, block in enumerate(cells.lists):
            values = slope[:, cells.features[block]] @ cells.first[block].T
            targets[:, index] = values.argmax(axis=1)
            gains[:, index] = values.max(axis=1) - values[np.arange(len(chosen)), chosen[:, block]]
        rank = np.argsort(np.argsort(-gains, axis=1, kind="stable"), axis=1)
        allowed = np.tile(SWITCHES, len(SHARES))
        for index, block in enumerate(cells.lists):
            switches = (rank[:, index, None] < allowed) & (gains[:, index, None] > 0.0)
            many[:, :, block] = np.where(switches, targets[:, index, None], many[:, :, block])
        blocks = chosen.shape[1]
        return many.reshape(-1, blocks), ends.reshape(-1, blocks)

    def climb(
        self, chosen: Cells, top: Tops | None = None, enough: float = np.inf, tries: int = TRIES
    ) -> tuple[Cells, Tops, Floats]:
        """Move one block at a time from points, shape [S, blocks], to where the objective is best."""
        cells = self.problem.cells
        chosen, count = chosen.copy(), len(chosen)
        top = np.zeros(chosen.shape, dtype=np.bool_) if top is None else top.copy()
        reached, rows = self.worth(chosen, top), np.arange(count)
        for _ in range(ROUNDS):
            before = reached.copy()
            for block in [*cells.ranges, *cells.lists]:
                candidates = self._tries(chosen[:, block], int(self.problem.layout.sizes[block]), tries)
                fine = tries == TRIES and self.shown is None and block not in cells.lists
                ends = (False, True) if fine else (False,)
                wide = candidates.shape[1] * len(ends)
                many, tops = np.repeat(chosen, wide, axis=0), np.repeat(top, wide, axis=0)
                many[:, block] = np.tile(candidates, (1, len(ends))).reshape(-1)
                tops[:, block] = np.tile(np.repeat(ends, candidates.shape[1]), count)
                worth = self.worth(many, tops).reshape(count, wide)
                best = worth.argmax(axis=1)
                better = worth[rows, best] > reached
                moved = (rows * wide + best)[better]
                chosen[better], top[better] = many[moved], tops[moved]
                reached = np.maximum(reached, worth[rows, best])
                if reached.max() > enough:
                    break
            still = reached > before
            if not still.any() or reached.max() > enough:
                break
        best = int(reached.argmax())
        self._keep(float(reached[best]), chosen[best], top[best])
        return chosen, top, reached

    def _tries(self, now: NDArray[np.int64], size: int, tries: int) -> NDArray[np.int64]:
        """Return cells to try for each point, shape [S, tries]: some of all, and those beside where it is."""
        some = np.unique(np.linspace(0, size - 1, min(size, tries)).astype(np.int64))
        if size <= tries or tries < TRIES:
            return np.repeat(some[None, :], len(now), axis=0)
        beside = now[:, None] + np.array([-16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16])
        return np.concatenate([np.repeat(some[None, :], len(now), axis=0), np.clip(beside, 0, size - 1)], axis=1)

    def _keep(self, worth: float, chosen: NDArray[np.int64], top: NDArray[np.bool_]) -> None:
        if worth <= self.best:
            return
        self.best, self.top = float(worth), top
        cells = chosen.tolist()
        cells[self.problem.changing] = self.pair[0]
        self.point, self.values = tuple(cells), {}
        for block, cell in enumerate(cells):
            if block != self.problem.changing:
                self.values |= self.problem.value(block, cell, bool(top[block]))

    def _features(self, chosen: Cells, top: Tops) -> Floats:
        cells = self.problem.cells
        features = np.repeat(cells.fixed[None, :], len(chosen), axis=0)
        for block, mine in enumerate(cells.features):
            if block == cells.changing:
                features[:, mine] = 0.0
                continue
            at = chosen[:, block]
            if self.shown is not None:
                features[:, mine] = self.shown[block][at]
                continue
            features[:, mine] = np.where(top[:, block, None], cells.last[block][at], cells.first[block][at])
        return features

    def nearer(self, chosen: Cells, masks: Mapping[int, NDArray[np.bool_]]) -> Cells:
        """Move the blocks that cost most to their cheapest cells, until the distance is small enough."""
        rows = np.arange(len(chosen))
        cheap, extra = chosen.copy(), np.zeros(chosen.shape)
        least = np.zeros(len(chosen))
        for block, cost in self.costs.items():
            values = np.where(masks[block], cost, np.inf)
            cheap[:, block] = values.argmin(axis=1)
            extra[:, block] = cost[chosen[:, block]] - values[rows, cheap[:, block]]
            least += values[rows, cheap[:, block]]
        order = np.argsort(extra, axis=1, kind="stable")
        total = np.cumsum(np.take_along_axis(extra, order, axis=1), axis=1) + least[:, None]
        fits = np.zeros(chosen.shape, dtype=np.bool_)
        np.put_along_axis(fits, order, total <= self.near, axis=1)
        return np.where(fits, chosen, cheap)
