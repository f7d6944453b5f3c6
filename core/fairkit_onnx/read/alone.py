"""Whether a model scores each row by itself: alone, in other batches, in another order, and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.support.timings import phase
from fairkit_onnx.read.runner import digest_generator
from fairkit_onnx.read.statics import batch_readers, draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.models.scorer import Predictions
    from fairkit_onnx.read.runner import Runner

ROUNDING = 2e-5
"""The largest difference of two probabilities that another batch may make: float32 sums in another order."""
HALF_ROUNDING = 1e-2
"""The same for models that compute in float16."""
ALONE, SUSPECT = 96, 4_096
"""How many of the first rows are scored one at a time; and of a model whose nodes could see other rows."""
SMALL, SMALL_ROWS = 7, 140
"""A small size of a batch, and how many rows are scored in batches of it."""
OTHER = 512
"""How many of the first rows are scored in another order, and once more."""
SPOT = 6
"""How many rows of every later batch are scored one at a time."""
SPOT_FROM = 64
"""Batches with fewer rows are not looked at again."""

Understand = Callable[[Mapping[str, Any]], "Predictions"]


class Lone:
    """Scores rows again and compares.

    Parameters
    ----------
    runner, outputs, understand
        The graph, the outputs that are read, and how.
    """

    def __init__(self, runner: Runner, outputs: Sequence[str], understand: Understand) -> None:
        self._runner, self._outputs, self._understand = runner, list(outputs), understand
        self._tolerance = HALF_ROUNDING if _half(runner) else ROUNDING
        fixed = runner.model.batch
        self._by_one = fixed == 1
        self.refuse_draws()

    def refuse_draws(self) -> None:
        """Refuse a graph that draws random numbers by itself.

        Raises
        ------
        ModelError
            It names the nodes.
        """
        drawn = draws(self._runner.model.proto, self._outputs)
        if drawn:
            raise ModelError(
                f"{self._runner.model.name} draws random numbers inside the graph ({', '.join(drawn[:4])}), so that "
                "nobody can repeat what it decides. Export it in evaluation mode; a randomized decision takes its "
                "draws from an input"
            )

    @phase("score")
    def examine(
        self, arrays: Mapping[str, NDArray[Any]], found: Predictions, rows: NDArray[np.int64]
    ) -> list[str]:
        """Score the first rows again, in every way; return sentences for the report.

        Parameters
        ----------
        arrays, found, rows
            The graph's inputs for the first batch, what was read off its outputs, and the rows' numbers.

        Raises
        ------
        ModelError
            A row's score depends on the other rows, on the size of the batch, or on the call.
        """
        order = self._generator("order").permutation(len(rows))
        suspects = batch_readers(self._runner.model.proto, self._outputs)
        self._compare(arrays, found, order[:OTHER], OTHER, rows, "in another order of the rows")
        self._compare(arrays, found, order[:OTHER], OTHER, rows, "when it is scored again")
        if self._by_one:
            return []
        alone = np.sort(order[: SUSPECT if suspects else ALONE])
        self._compare(arrays, found, alone, 1, rows, "alone")
        self._compare(arrays, found, np.sort(order[-SMALL_ROWS:]), SMALL, rows, f"in batches of {SMALL}")
        if not suspects:
            return []
        shown = ", ".join(suspects[:4]) + (f" and {len(suspects) - 4} more" if len(suspects) > 4 else "")
        return [
            f"These nodes could let a score depend on the other rows of a batch: {shown}. {len(alone):,} rows were "
            "scored one at a time, and none came out otherwise."
        ]

    def spot(self, arrays: Mapping[str, NDArray[Any]], found: Predictions) -> None:
        """Score a few rows of a later batch alone.

        Raises
        ------
        ModelError
            A row's score depends on its batch.
        """
        count = _length(found)
        if count < SPOT_FROM or self._by_one:
            return
        places = np.sort(self._generator(str(count)).choice(count, SPOT, replace=False))
        self._compare(arrays, found, places, 1, None, "alone")

    def _compare(
        self,
        arrays: Mapping[str, NDArray[Any]],
        found: Predictions,
        places: NDArray[np.int64],
        size: int,
        rows: NDArray[np.int64] | None,
        how: str,
    ) -> None:
        taken = {name: array[places] for name, array in arrays.items()}
        again = self._understand(self._runner.model.run_in_parts(taken, self._outputs, size))
        bad = differing(_take(found, places), again, self._tolerance)
        if not len(bad):
            return
        told = places[bad] if rows is None else rows[places[bad]]
        shown = ", ".join(str(row) for row in sorted(told.tolist())[:5]) + (" ..." if len(bad) > 5 else "")
        where = f"rows {shown} of a batch" if rows is None else f"row{'s' if len(bad) > 1 else ''} {shown}"
        raise ModelError(
            f"{self._runner.model.name} gives {len(bad):,} of {len(places):,} rows another result {how} than in a "
            f"batch of {_length(found):,} ({where}): a decision about a person must not depend on "
            f"who else is in the batch"
            f"{self._suspects()}"
        )

    def _suspects(self) -> str:
        suspects = batch_readers(self._runner.model.proto, self._outputs)
        return f". These nodes see the whole batch: {', '.join(suspects[:4])}" if suspects else ""

    def _generator(self, salt: str) -> np.random.Generator:
        return digest_generator(self._runner.model.sha256, salt)


def differing(one: Predictions, other: Predictions, tolerance: float) -> NDArray[np.int64]:
    """Return the places of rows whose predictions differ beyond rounding.

    A decision may flip where its score moved by rounding, in one row of a thousand; without scores it may not.
    """
    bad = np.zeros(_length(one), dtype=bool)
    moved = np.zeros(len(bad), dtype=bool)
    for name in ("score", "probabilities", "members"):
        first, second = getattr(one, name), getattr(other, name)
        if first is None or second is None:
            continue
        scale = max(1.0, float(np.abs(first).max(initial=0.0)))
        apart = np.abs(first - second).reshape(len(bad), -1).max(axis=1)
        bad |= apart > tolerance * scale
        moved |= apart > 0
    flipped = np.zeros(len(bad), dtype=bool)
    for name in ("decision", "predicted"):
        first, second = getattr(one, name), getattr(other, name)
        if first is not None and second is not None:
            flipped |= np.abs(first - second) > tolerance
    excused = flipped & moved & ~bad
    if excused.sum() > max(1, len(bad) // 1000):
        excused[:] = False
    return np.flatnonzero(bad | (flipped & ~excused))


def _take(found: Predictions, places: NDArray[np.int64]) -> Predictions:
    taken = {
        name: None if (values := getattr(found, name)) is None else values[places]
        for name in ("score", "decision", "probabilities", "predicted", "members")
    }
    return type(found)(**taken)


def _length(found: Predictions) -> int:
    return next(
        len(values) for values in (found.decision, found.predicted, found.score) if values is not None
    )


def _half(runner: Runner) -> bool:
    """Whether the graph computes in float16 anywhere that can be seen."""
    graph, half = runner.model.proto.graph, 10
    if any(tensor.data_type in (half, 16) for tensor in graph.initializer):
        return True
    return any(
        attribute.name == "to" and attribute.i in (half, 16)
        for node in graph.node
        for attribute in node.attribute
    )
