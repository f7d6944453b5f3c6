"""A graph with its feeds: columns in, raw outputs out, and the draws of a randomized model checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.support.timings import phase
from fairkit_onnx.read import outputs as reading
from fairkit_onnx.read.feeds import RANDOM_INPUT, built
from fairkit_onnx.read.members import MEMBER_SCORES, member_weights, misdrawn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.models.scorer import Columns
    from fairkit_onnx.read.feeds import Feed
    from fairkit_onnx.read.graph import Graph

ROUNDING = 1e-6
"""A draw that is nearer to the chance may fall on either side of it by rounding."""


class Runner:
    """The graph with its feeds."""

    def __init__(self, model: Graph, feeds: Sequence[Feed], *, ours: bool) -> None:
        self.model = model
        self.feeds = feeds
        self.ours = ours
        self.shares = member_weights(model.proto) if ours else None
        self.columns = tuple(dict.fromkeys(column for feed in feeds for column in feed.columns))
        self.random = next((i for i in model.inputs if ours and i.name == RANDOM_INPUT), None)
        self._draws: NDArray[np.float32] = np.empty(0, dtype=np.float32)

    @property
    def extra(self) -> tuple[str, ...]:
        """The outputs that a mixture is measured by, besides those that are read."""
        return () if self.shares is None else (MEMBER_SCORES, reading.SCORE)

    @phase("score")
    def raw(self, columns: Columns, outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run the graph on raw columns, each of shape [n]; by default all outputs are computed."""
        return self.model.run(self.arrays(columns), outputs)

    def arrays(self, columns: Columns) -> dict[str, NDArray[Any]]:
        """Return the graph's inputs for raw columns, draws included."""
        rows = len(next(iter(columns.values())))
        arrays = built(self.feeds, columns)
        if self.random is not None:
            shape = (rows, 1) if len(self.random.shape) > 1 else (rows,)
            arrays[RANDOM_INPUT] = self.draws(rows).reshape(shape).astype(self.random.dtype)
        return arrays

    def draws(self, rows: int) -> NDArray[np.float32]:
        """Return draws in [0, 1), shape [n]: the same for every batch.

        They follow from the model's digest, so that whoever wrote the file could not know them.
        """
        if len(self._draws) < rows:
            self._draws = digest_generator(self.model.sha256).random(rows, dtype=np.float32)
        return self._draws[:rows]

    def drawn(self, values: Mapping[str, Any], settled: reading.Reading) -> NDArray[np.float64] | None:
        """Return a randomized model's drawn decisions, shape [n]; None for other models."""
        if self.shares is not None:
            self._check_members(values, settled)
        if settled.chance is None:
            return None
        chance = np.asarray(values[settled.chance.name], dtype=np.float64).reshape(-1)
        u = np.full(len(chance), 0.5) if self.random is None else self.draws(len(chance)).astype(np.float64)
        if (self.random is None or settled.label is None) and bool(((chance > 0) & (chance < 1)).any()):
            raise ModelError(
                f"{self.model.name} has chances of a favorable decision strictly between 0 and 1, but nothing in it "
                f"draws by them: it needs the input {RANDOM_INPUT!r} and the output {reading.DECISION!r}"
            )
        if settled.label is None:
            return None
        decided = np.asarray(reading.as_matrix(settled.label, values[settled.label.name]), dtype=np.float64)
        wrong = (decided != (u < chance)) & (np.abs(u - chance) > ROUNDING)
        if wrong.any():
            raise ModelError(
                f"{self.model.name} does not decide as it says: on {int(wrong.sum()):,} of {len(wrong):,} rows the "
                f"output {settled.label.name!r} is not u < {settled.chance.name}. Name the output that is served: "
                "`decision_output=NAME`, or `score_output=NAME` with `threshold=P`"
            )
        return 1 - decided if settled.place == 0 else decided

    def _check_members(self, values: Mapping[str, Any], settled: reading.Reading) -> None:
        assert self.shares is not None  # noqa: S101 -- asked for only then
        score = np.asarray(values.get(reading.SCORE, np.nan), dtype=np.float64).reshape(-1)
        members = np.asarray(values[MEMBER_SCORES], dtype=np.float64)
        if members.shape != (len(score), len(self.shares)):
            return  # the scorer says what is wrong with the shape
        wrong = misdrawn(score, members, self.shares, self.draws(len(score)), ranked=settled.task == "binary")
        if wrong:
            raise ModelError(
                f"{self.model.name} does not score as it says: on {wrong:,} of {len(score):,} rows the output "
                f"{reading.SCORE!r} is not that of the member which its weights and the draw choose"
            )


def digest_generator(sha256: str, salt: str = "") -> np.random.Generator:
    """Return a generator that follows from a file's digest."""
    return np.random.default_rng([int(sha256[:16], 16), *salt.encode()])
