"""Whether a model scores each row by itself: proved from its graph, and tried in other batches, orders and again."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.support.timings import phase
from fairkit_onnx.read.statics import draws
from fairkit_onnx.rows.proof import prove

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.models.scorer import Predictions
    from fairkit_onnx.read.runner import Runner
    from fairkit_onnx.rows.proof import RowsProof

ROUNDING = 2e-5
"""The largest difference of two probabilities that another batch may make: float32 sums in another order."""
HALF_ROUNDING = 1e-2
"""The same for models that compute in float16."""
ALONE, UNPROVED = 96, 4_096
"""How many of the first rows are scored one at a time; and of a model whose rows are not proved to stay apart."""
SMALL, SMALL_ROWS = 7, 140
"""A small size of a batch, and how many rows are scored in batches of it."""
SIZES, LARGEST = 24, 65_536
"""How many secret sizes of a batch are tried where nothing is proved, and the largest."""
SECONDS = 20.0
"""No further size is tried after so long."""
OTHER = 512
"""How many of the first rows are scored in another order, and once more."""
SPOT = 6
"""How many rows of every later batch are scored one at a time."""
SPOT_FROM = 64
"""Batches with fewer rows are not looked at again."""

Understand = Callable[[Mapping[str, Any]], "Predictions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """What is known of a model's rows: whether each is answered from itself alone."""

    proved: bool | None  # whether it is proved for every size of a batch; None where no graph can be seen
    operators: tuple[str, ...] = ()  # the operators at which rows may meet, where it is not proved
    sizes: int = 0  # how many secret sizes of a batch were tried in that case
    widths: Mapping[str, Sequence[int]]  # by input of the graph, the lengths of its axes after the first

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        tried = {"operators": list(self.operators), "sizes": self.sizes} if self.proved is False else {}
        return {"proved": self.proved, **tried, "widths": {k: list(v) for k, v in self.widths.items()}}


class Lone:
    """Scores rows again and compares. Rows and batches follow from a seed that nobody knows before."""

    def __init__(self, runner: Runner, outputs: Sequence[str], understand: Understand) -> None:
        self._runner, self._outputs, self._understand = runner, list(outputs), understand
        self._tolerance = HALF_ROUNDING if _half(runner) else ROUNDING
        self._by_one = runner.model.batch == 1
        self._rng = np.random.default_rng(secrets.randbits(128))
        self._proof: RowsProof | None = None
        self.refuse_draws()

    def refuse_draws(self) -> None:
        """Refuse a graph that draws random numbers by itself."""
        drawn = draws(self._runner.model.proto, self._outputs)
        if drawn:
            raise ModelError(
                f"{self._runner.model.name} draws random numbers inside the graph ({', '.join(drawn[:4])}), so that "
                "nobody can repeat what it decides. Export it in evaluation mode; a randomized decision takes its "
                "draws from an input"
            )

    @phase("score")
    def examine(
        self, arrays: Mapping[str, NDArray[Any]], predictions: Predictions, rows: NDArray[np.int64]
    ) -> tuple[list[str], Apart]:
        """Score the first rows again, in every way."""
        widths = {name: array.shape[1:] for name, array in arrays.items()}
        if self._runner.model.proto.graph.output:
            self._proof = prove(self._runner.model.proto, self._outputs, widths)
        order = self._rng.permutation(len(rows))
        self._compare(arrays, predictions, order[:OTHER], OTHER, rows, "in another order of the rows")
        self._compare(arrays, predictions, order[:OTHER], OTHER, rows, "when it is scored again")
        if self._by_one:  # it never sees two rows
            return [], Apart(proved=True, widths=widths)
        unproved = self._proof is not None and not self._proof.holds
        alone = np.sort(order[: UNPROVED if unproved else ALONE])
        self._compare(arrays, predictions, alone, 1, rows, "alone")
        self._compare(arrays, predictions, np.sort(order[-SMALL_ROWS:]), SMALL, rows, f"in batches of {SMALL}")
        if self._proof is None or self._proof.holds:
            return [], Apart(proved=None if self._proof is None else True, widths=widths)
        sizes = 0 if self._runner.model.batch else self._secret_sizes(arrays, predictions, rows)
        note = (
            "It is not proved that each row is answered from itself alone, whatever the size of the batch: "
            f"{_shown(self._proof)} could let rows meet. {len(alone):,} rows were scored one at a time"
            + (f", and rows in {sizes} batches of secret sizes" if sizes else "")
            + ", and none came out otherwise."
        )
        return [note], Apart(proved=False, operators=self._proof.operators, sizes=sizes, widths=widths)

    def _secret_sizes(
        self, arrays: Mapping[str, NDArray[Any]], predictions: Predictions, rows: NDArray[np.int64]
    ) -> int:
        """Score rows in the company of others drawn at random, in batches of secret sizes; return how many."""
        powers = 2 ** self._rng.integers(1, int(np.log2(LARGEST)) + 1, 2 * SIZES)
        near = np.clip(powers + self._rng.integers(-1, 2, 2 * SIZES), 2, LARGEST)
        free = np.exp(self._rng.uniform(np.log(2), np.log(LARGEST), 2 * SIZES)).astype(np.int64)
        sizes = np.sort(self._rng.permutation(np.unique(np.concatenate([near, free])))[:SIZES])
        ended = time.monotonic() + SECONDS
        for tried, size in enumerate(sizes.tolist()):
            company = self._rng.integers(0, len(rows), size)
            self._compare(arrays, predictions, company, size, rows, f"in a batch of {size:,}")
            if time.monotonic() > ended:
                return tried + 1
        return len(sizes)

    def spot(self, arrays: Mapping[str, NDArray[Any]], predictions: Predictions) -> None:
        """Score a few rows of a later batch alone."""
        count = rows_of(predictions)
        if count < SPOT_FROM or self._by_one:
            return
        places = np.sort(self._rng.choice(count, SPOT, replace=False))
        self._compare(arrays, predictions, places, 1, None, "alone")

    def _compare(
        self,
        arrays: Mapping[str, NDArray[Any]],
        predictions: Predictions,
        places: NDArray[np.int64],
        size: int,
        rows: NDArray[np.int64] | None,
        how: str,
    ) -> None:
        taken = {name: array[places] for name, array in arrays.items()}
        again = self._understand(self._runner.model.run_in_parts(taken, self._outputs, size))
        bad = differing(predictions.take(places), again, self._tolerance)
        if not len(bad):
            return
        told = np.unique(places[bad] if rows is None else rows[places[bad]])
        shown = ", ".join(str(row) for row in told[:5].tolist()) + (" ..." if len(told) > 5 else "")
        where = f"rows {shown} of a batch" if rows is None else f"row{'s' if len(bad) > 1 else ''} {shown}"
        raise ModelError(
            f"{self._runner.model.name} gives {len(bad):,} of {len(places):,} rows another result {how} than in a "
            f"batch of {rows_of(predictions):,} ({where}): a decision about a person must not depend on who else is in "
            f"the batch{self._suspects()}"
        )

    def _suspects(self) -> str:
        if self._proof is None or self._proof.holds:
            return ""
        return f". Rows may meet at {_shown(self._proof)}"


def _shown(proof: RowsProof) -> str:
    named = [str(origin) for origin in proof.origins]
    return ", ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")


def differing(left: Predictions, right: Predictions, tolerance: float) -> NDArray[np.int64]:
    """Return the places of rows whose predictions differ beyond rounding.

    A decision may flip where its score moved by rounding, in one row of a thousand; without scores it may not.
    """
    bad = np.zeros(rows_of(left), dtype=bool)
    moved = np.zeros(len(bad), dtype=bool)
    for name in ("score", "probabilities", "members"):
        first, second = getattr(left, name), getattr(right, name)
        if first is None or second is None:
            continue
        scale = max(1.0, float(np.abs(first).max(initial=0.0)))
        apart = np.abs(first - second).reshape(len(bad), -1).max(axis=1)
        bad |= apart > tolerance * scale
        moved |= apart > 0
    flipped = np.zeros(len(bad), dtype=bool)
    for name in ("decision", "predicted"):
        first, second = getattr(left, name), getattr(right, name)
        if first is not None and second is not None:
            flipped |= np.abs(first - second) > tolerance
    excused = flipped & moved & ~bad
    if excused.sum() > max(1, len(bad) // 1000):
        excused[:] = False
    return np.flatnonzero(bad | (flipped & ~excused))


def rows_of(found: Predictions) -> int:
    """Return how many rows were predicted."""
    return next(len(values) for values in (found.decision, found.predicted, found.score) if values is not None)


def _half(runner: Runner) -> bool:
    """Whether the graph computes in float16 anywhere that can be seen."""
    graph, half = runner.model.proto.graph, 10
    if any(tensor.data_type in (half, 16) for tensor in graph.initializer):
        return True
    return any(
        attribute.name == "to" and attribute.i in (half, 16) for node in graph.node for attribute in node.attribute
    )
