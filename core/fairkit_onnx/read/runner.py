"""A graph with its feeds: columns in, raw outputs out, and the draws of a randomized model checked."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.support.lazy_dataclass import dataclass
from fairkit.support.timings import phase
from fairkit_onnx.plain import Shown, show
from fairkit_onnx.read import outputs as reading
from fairkit_onnx.read.feeds import RANDOM_INPUT, built
from fairkit_onnx.read.graph import draws
from fairkit_onnx.read.outputs import MEMBER_SCORES, member_weights, misdrawn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.models.scorer import Columns, Predictions
    from fairkit_onnx.read.feeds import Feed
    from fairkit_onnx.read.graph import Graph

    Variant = tuple[int, bool] | None
    Understand = Callable[[Mapping[str, Any]], Predictions]


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
            # draws follow from the file's digest
            self._draws = np.random.default_rng([int(self.model.sha256[:16], 16)]).random(rows, dtype=np.float32)
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


# The model as it is served: rows are scored again in other batches, orders, numbers of threads, and unoptimised.


LARGEST, BATCHES, ALONE = 4_096, 12, 64
"""The largest batch, the least number of batches of drawn sizes, and how many rows are scored one at a time."""
MOST_THREADS = 64
MOVED = 2e-3
"""How far a score may move, twice what a number of float16 does; predicted numbers by so much of their size."""
FEW = 1_000
"""One decision of so many may differ: with ordinary tree ensembles 0 to 3 of 100,000 do."""
SPOT, SPOT_FROM = 6, 64
"""How many rows of every later batch are scored one at a time; batches with fewer rows are not looked at again."""
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What other runs of the first rows gave."""

    rows: int  # each was scored again at least once
    differ: tuple[int, ...] = ()  # the numbers of those whose decision was another one
    untried: tuple[str, ...] = ()  # what could not be run

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: nothing of what was drawn is in it."""
        more = {"where": list(self.differ[:_SHOWN]), "untried": list(self.untried)}
        return {"rows": self.rows, "differ": len(self.differ)} | {key: value for key, value in more.items() if value}

    @property
    def notes(self) -> list[str]:
        """What people must know of it."""
        if not self.differ:
            return []
        return [
            f"Probed: of the first {self.rows:,} rows, scored again in other batches, orders and numbers of threads, "
            f"with and without graph optimisation, {len(self.differ):,} got another decision (row "
            f"{_listed(self.differ)})."
        ]

    @property
    def doubt(self) -> str | None:
        """Why there is no verdict; None where everything was tried."""
        return f"the model could not be run {'; nor '.join(self.untried)}" if self.untried else None


def shown_of(model: Graph, arrays: Mapping[str, NDArray[Any]]) -> Shown:
    """Say what is shown of a model's file, fed as it is here."""
    widths = {name: array.shape[1:] for name, array in arrays.items()}
    if model.content is None:
        return Shown(broken="a server answers, and no file was seen", meet=None, widths=widths, files={})
    return show(model.content, widths, model.folder)


class Probe:
    """Scores rows again and compares."""

    def __init__(
        self, runner: Runner, outputs: Sequence[str], understand: Understand, shown: Shown, *, numbers: bool
    ) -> None:
        self._runner, self._outputs, self._understand = runner, list(outputs), understand
        self._numbers, self._shown = numbers, shown
        self._rng = np.random.default_rng(secrets.randbits(128))
        drawn = draws(runner.model.proto, self._outputs)
        if drawn:
            raise ModelError(
                f"{runner.model.name} draws random numbers inside the graph ({', '.join(drawn[:4])}), so that nobody "
                "can repeat what it decides. Export it in evaluation mode; a randomized decision takes its draws from "
                "an input"
            )

    @phase("score")
    def examine(self, arrays: Mapping[str, NDArray[Any]], predictions: Predictions, rows: NDArray[np.int64]) -> Probed:
        """Score the first rows again, each at least once."""
        differ, untried, order = set[int](), list[str](), np.empty(0, dtype=np.int64)
        for variant, sizes in self._trials(len(rows)):
            while len(order) < sum(sizes):
                order = np.concatenate([order, self._rng.permutation(len(rows))])
            places, order = order[: sum(sizes)], order[sum(sizes) :]
            try:
                differ |= set(self._compare(arrays, predictions, places, sizes, variant, rows).tolist())
            except ModelError:
                raise
            except Exception as error:
                if variant is None:
                    raise
                untried.append(
                    f"{_way(variant, drawn=False).strip()} ({(str(error).strip().splitlines() or ['?'])[0][:200]})"
                )
        return Probed(rows=len(rows), differ=tuple(sorted(differ)), untried=tuple(untried))

    def _trials(self, rows: int) -> Iterator[tuple[Variant, list[int]]]:
        """Yield ways to run the model with sizes of batches that together are at least so many rows."""
        model = self._runner.model
        variants: list[Variant] = [None]
        if model.content is not None:
            first, second = self._rng.integers(1, MOST_THREADS + 1, 2).tolist()
            variants += [(first, True), (second, False)]
        sizes = list[int]()
        while len(sizes) < BATCHES or sum(sizes) < rows:
            sizes.append(model.batch or self._size())
        for index, variant in enumerate(variants):
            alone = [1] * min(rows, ALONE) if variant is None and model.batch is None else []
            yield variant, alone + sizes[index :: len(variants)]

    def _size(self) -> int:
        """Draw a size: its logarithm evenly, or a power of two with its neighbours, where kernels change their ways."""
        power = self._rng.uniform(0, np.log2(LARGEST))
        if self._rng.random() < 0.5:
            return int(np.clip(2 ** round(power) + self._rng.integers(-1, 2), 1, LARGEST))
        return int(2**power)

    def spot(self, arrays: Mapping[str, NDArray[Any]], predictions: Predictions) -> None:
        """Score a few rows of a later batch alone."""
        count = rows_of(predictions)
        if count >= SPOT_FROM and self._runner.model.batch is None:
            places = np.sort(self._rng.choice(count, SPOT, replace=False))
            self._compare(arrays, predictions, places, [1] * SPOT, None, None)

    def _compare(
        self,
        arrays: Mapping[str, NDArray[Any]],
        predictions: Predictions,
        places: NDArray[np.int64],
        sizes: Sequence[int],
        variant: Variant,
        rows: NDArray[np.int64] | None,
    ) -> NDArray[np.int64]:
        """Return the numbers of the rows with another decision, which are few."""
        model = self._runner.model
        taken = {name: array[places] for name, array in arrays.items()}
        again = self._understand(model.run_in_parts(taken, self._outputs, sizes, variant))
        bad, turned = differing(predictions.take(places), again, numbers=self._numbers)
        numbers = places if rows is None else rows[places]
        if not len(bad):
            return np.unique(numbers[turned])
        size = sizes[int(np.searchsorted(np.cumsum(sizes), bad[0], side="right"))]
        how = "alone" if size == 1 else f"in a batch of {size:,}"
        where = "rows of a batch " if rows is None else "row "
        doubt = self._shown.broken or self._shown.meet
        raise ModelError(
            f"{model.name} gives {len(bad):,} of {len(places):,} rows another result {how}"
            f"{_way(variant) if variant else ''} than in a batch of {rows_of(predictions):,} ({where}"
            f"{_listed(np.unique(numbers[bad]).tolist())}): a decision about a person must not depend on who else is "
            f"in the batch, nor on how the file is run{f'. Rows may meet: {doubt}' if doubt else ''}"
        )


def _way(variant: tuple[int, bool], *, drawn: bool = True) -> str:
    threads = f"with {variant[0]} threads" if drawn else "with other numbers of threads"
    return f" {threads}" * (variant[1] or drawn) + " without graph optimisation" * (not variant[1])


def _listed(rows: Sequence[int]) -> str:
    return ", ".join(map(str, rows[:_SHOWN])) + " ..." * (len(rows) > _SHOWN)


def differing(
    left: Predictions, right: Predictions, *, numbers: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of rows that another run answers otherwise, and of few decisions that rounding explains.

    `numbers`: scores are predicted numbers, on any scale.
    """
    count = rows_of(left)
    bad, flipped, moved = (np.zeros(count, dtype=bool) for _ in range(3))
    scored = False
    for name in ("score", "probabilities", "members"):
        first, second = getattr(left, name), getattr(right, name)
        if first is not None and second is not None:
            size = np.maximum(np.abs(first), np.abs(first).mean()) if numbers else 1.0
            apart = np.abs(first - second)
            bad |= (apart > MOVED * size).reshape(count, -1).any(axis=1)
            moved |= apart.reshape(count, -1).any(axis=1)
            scored = True
    for name in ("decision", "predicted"):
        first, second = getattr(left, name), getattr(right, name)
        if first is not None and second is not None:
            flipped |= np.abs(first - second) > MOVED
    excused = flipped & ~bad & (moved | (not scored))
    if excused.sum() > max(count // FEW, int(scored)):
        excused[:] = False
    return np.flatnonzero(bad | (flipped & ~excused)), np.flatnonzero(excused)


def rows_of(found: Predictions) -> int:
    """Return how many rows were predicted."""
    return next(len(values) for values in (found.decision, found.predicted, found.score) if values is not None)
