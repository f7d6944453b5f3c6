"""The last step before a proof is written: rows of the table and random inputs, run at every value of what changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.charts import ChartTable, EvidenceChart
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE, plain
from fairkit_all_inputs.domains import meet, state_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.models.scorer import Predictions, Scorer
    from fairkit.results.findings import Finding
    from fairkit_all_inputs.bounds.problem import Problem
    from fairkit_all_inputs.bounds.searching import Answer
    from fairkit_all_inputs.domains import AuditScope
    from fairkit_onnx.structure.cells import Block
    from fairkit_onnx.structure.encoded import Encoded

    Columns = Mapping[str, NDArray[Any]]


RANDOM = 4_000
"""So many random inputs of the domain are run, half of them in cells drawn at random."""
_LOGIT = 1e-4
"""By how much the logits of two probabilities in float32 may be off, where these are between .01 and .99."""
_FEW = 200
"""Rows of which it is tried whether the score is the sum."""


class ContradictionError(RuntimeError):
    """A model does on an input what was proved of none: an error of fairkit."""


@dataclass(kw_only=True, eq=False)
class Replay:
    """What inputs did when they were run."""

    rows: int = 0  # how many rows of the table were run; by block, how many were not in the domain, and of any block
    outside: dict[str, int] = field(default_factory=dict)
    most: dict[int, tuple[float, Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=dict)
    slack: float = 0.0  # by how much a change of the sum may be smaller than it is said here

    def notes(self) -> list[str]:
        """Say which rows the statements are not about."""
        gone = self.outside.get("", 0)
        if not gone:
            return []
        shown = ", ".join(f"{name}: {count:,}" for name, count in self.outside.items() if name and count)
        return [f"{gone:,} of {self.rows:,} rows are outside the domain ({shown}): nothing is said about them."]


def replayed(scope: AuditScope, model: Encoded, problem: Problem) -> Replay:
    """Run every row of the table, and random inputs, at every value of what changes."""
    names = list(scope.context.scorer.columns)
    sums = _Sums(model, problem)
    replay = Replay(slack=sums.slack)
    for batch in scope.context.dataset.batches(names, partial=True):
        columns = batch.columns(names)
        inside = inside_of(problem, columns)
        replay.rows += len(inside[""])
        for name, some in inside.items():
            replay.outside[name] = replay.outside.get(name, 0) + int((~some).sum())
        columns_inside = {name: values[inside[""]] for name, values in columns.items()}
        _run(scope, problem, columns_inside, sums, replay)
    drawn = _random(problem, scope.context.rng("all-inputs.replay"))
    _run(scope, problem, {name: drawn[name] for name in names}, sums, replay)
    return replay


def confirmed(scope: AuditScope, problem: Problem, kind: int, finding: Finding, replay: Replay) -> Finding:
    """Return a finding with what was run: an input that changes more than was found is its witness."""
    if kind not in replay.most or finding.interval is None:
        return finding
    value, first, second = replay.most[kind]
    low, high = finding.interval
    tolerance = 0.0 if kind == FLIP else 1e-6 * max(1.0, abs(high)) + (replay.slack if kind == SCORE else 0.0)
    if value > high + tolerance:
        shown = "; ".join(
            f"{name}={first[name]!r}" if first[name] == second[name] else f"{name}={first[name]!r} and {second[name]!r}"
            for name in first
        )
        raise ContradictionError(
            f"all-inputs: it was proved that {finding.metric} is at most {high:g}, and the model makes {value:g} of "
            f"this input: {shown}. This is an error of fairkit, and nothing was written: please report it"
        )
    if kind == FLIP:
        value = high
    else:  # in the arithmetic of the proof, as whoever checks it computes it again
        value, first, second = _exact(scope, problem, kind, first, second)
    if value <= low + 1e-6 * max(1.0, abs(high)):
        return finding
    said = ask(scope.context.scorer, [first, second], scope.people.columns)
    witness = described(first, second, said)
    evidence = dict(finding.evidence) | {"witness": [witness] if of_somebody(scope, witness) else witness}
    if kind == FLIP:
        evidence = {key: value for key, value in evidence.items() if key not in ("proof", "proved", "problem_sha256")}
    doubt = finding.inconclusive
    if kind == FLIP and evidence.pop("narrowed", None):
        doubt = None  # it was run
    evidence["decided"] = "narrowed" not in evidence and high - value <= meet(problem, kind, value)
    stale = state_of(scope, decided=False)
    notes = tuple(note for note in finding.notes if not evidence["decided"] or note not in stale)
    interval = (value, max(value, high))
    return replace(
        finding, value=value, interval=interval, evidence=evidence, notes=notes, interval_at=lambda _: interval,
        inconclusive=doubt,
    )  # fmt: skip


def _exact(
    scope: AuditScope, problem: Problem, kind: int, first: Mapping[str, Any], second: Mapping[str, Any]
) -> tuple[float, Mapping[str, Any], Mapping[str, Any]]:
    """Return the change between two inputs, the larger sum first; none of an input outside the domain's values."""
    rows = cells_of([first, second], {name: scope.people.columns[name] for name in first})
    points = np.stack([block.cells_of(rows) for block in problem.blocks], axis=1)
    if (points < 0).any():
        return -np.inf, first, second
    f, g = (float(total) for total in problem.sums(points))
    if f < g:
        first, second, f, g = second, first, g, f
    change = f - g if kind == SCORE else 0.5 * (np.tanh(0.5 * f) - np.tanh(0.5 * g))
    return float(change), first, second


def inside_of(problem: Problem, columns: Columns) -> dict[str, NDArray[np.bool_]]:
    """Tell by block that stays which rows have a cell of it, shape [n]; under the empty name, which have all."""
    rows = len(next(iter(columns.values())))
    result = {"": np.ones(rows, dtype=np.bool_)}
    for index, block in enumerate(problem.blocks):
        if index != problem.changing:
            result[block.name] = block.cells_of(columns) >= 0
            result[""] &= result[block.name]
    return result


def _run(scope: AuditScope, problem: Problem, columns: Columns, sums: _Sums, replay: Replay) -> None:
    """Run inputs at every value, and remember the largest changes."""
    rows = len(next(iter(columns.values())))
    if not rows:
        return
    block = problem.blocks[problem.changing]
    said, summed, fed = [], [], []
    for choice in block.choices:
        changed = dict(columns)
        for name, value in zip(block.columns, choice, strict=True):
            changed[name] = _repeated(value, columns[name], rows)
        fed.append(changed)
        said.append(scope.context.scorer.predict(changed))
        summed.append(sums(changed, said[-1]))
    decisions = [answer.decision for answer in said]
    scores = [answer.score for answer in said]
    for kind, values in ((FLIP, decisions), (SCORE, summed), (CHANCE, scores)):
        if any(value is None for value in values):
            continue
        table = np.stack([np.asarray(value, dtype=np.float64) for value in values])
        if kind == FLIP:
            change = (table != table[:1]).any(axis=0).astype(np.float64)
        else:
            change = np.nan_to_num(table.max(axis=0) - table.min(axis=0))
        at = int(change.argmax())
        if change[at] > replay.most.get(kind, (0.0,))[0]:
            ends = [int(table[:, at].argmax()), int(table[:, at].argmin())]
            if kind == FLIP and len(set(table[:, at].tolist())) > 1 and ends[0] == ends[1]:
                continue
            pair = [{name: plain(fed[end][name][at]) for name in columns} for end in ends]
            replay.most[kind] = (float(change[at]), pair[0], pair[1])


def _repeated(value: Any, like: NDArray[Any], rows: int) -> NDArray[Any]:
    if like.dtype.kind == "O" or isinstance(value, str) or value is None:
        return np.full(rows, value, dtype=object)
    repeated = np.full(rows, value)
    return repeated.astype(like.dtype) if like.dtype.kind in "iub" and repeated[0] == int(repeated[0]) else repeated


class _Sums:
    """The runtime's own sums, as far as the file shows them: a tensor, the score itself, or the logit of a score."""

    def __init__(self, model: Encoded, problem: Problem) -> None:
        self.logistic = problem.logistic
        cut = model.tail.cut
        self._run = model.tensor(cut) if isinstance(cut, str) else None
        self._problem = problem
        self._same: bool | None = None
        self.slack = _LOGIT if self._run is None and self.logistic else 0.0

    def __call__(self, columns: Columns, said: Predictions) -> NDArray[np.float64] | None:
        """Return the sums of some rows, shape [n]; None where they are not shown."""
        if self._run is not None:
            values = self._run(columns).astype(np.float64)
            return values[:, 1] - values[:, 0] if values.shape[1] == 2 else values[:, 0]
        if said.score is None:
            return None
        if self.logistic:
            chance = np.clip(said.score, 0.01, 0.99)  # beyond, float32 says too little
            return np.asarray(np.log(chance) - np.log1p(-chance))
        if self._same is None:
            some = {name: values[:_FEW] for name, values in columns.items()}
            points = np.stack([block.cells_of(some) for block in self._problem.blocks], axis=1)
            sums = self._problem.sums(points[(points >= 0).all(axis=1)])
            shown = said.score[: len(points)][(points >= 0).all(axis=1)]
            near = self._problem.rounding + 1e-6
            self._same = any(bool((np.abs(sign * sums - shown) <= near).all()) for sign in (1.0, -1.0))
        return np.asarray(said.score) if self._same else None


def _random(problem: Problem, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Return random inputs of the domain, by column: half of them from cells, half from the whole of each column."""
    columns: dict[str, NDArray[Any]] = {}
    for block in problem.blocks:
        if block.ends is None:
            at = rng.integers(0, len(block.choices), RANDOM)
            for index, name in enumerate(block.columns):
                values = [choice[index] for choice in block.choices]
                text = any(isinstance(value, str) or value is None for value in values)
                columns[name] = np.array(values, dtype=object if text else None)[at]
        else:
            columns[block.columns[0]] = _random_numbers(block, rng)
    return columns


def _random_numbers(block: Block, rng: np.random.Generator) -> NDArray[np.float64]:
    starts, ends = block.intervals
    cell = rng.integers(0, len(ends), RANDOM)
    low, high = starts[cell], ends[cell]
    low[::2], high[::2] = block.low, ends[-1]
    share = np.where(rng.random(RANDOM) < 0.2, rng.integers(0, 2, RANDOM), rng.random(RANDOM))  # ends, too
    values = low + share * (high - low)
    if block.whole:
        values = np.floor(values)
    if block.single:
        values = values.astype(np.float32).astype(np.float64)
    values = np.clip(values, block.low, ends[-1])
    if block.size > len(ends):
        values[rng.random(RANDOM) < 0.1] = np.nan
    return np.asarray(values)


# A witness: an input at two values of what changes, run by the model itself, shown side by side.


FIRST, SECOND = "first", "second"


def cells_of(rows: Sequence[Mapping[str, Any]], example: Mapping[str, Any]) -> dict[str, Any]:
    """Return raw columns of a few people given by values."""
    columns = {}
    for name, like in example.items():
        values = [row[name] for row in rows]
        if like.dtype.kind == "O":
            columns[name] = np.array([None if v is None else v for v in values], dtype=object)
        else:
            columns[name] = np.array([np.nan if v is None else v for v in values])
            if like.dtype.kind in "iub" and (columns[name] == columns[name].astype(like.dtype)).all():
                columns[name] = columns[name].astype(like.dtype)
    return columns


def ask(scorer: Scorer, rows: Sequence[Mapping[str, Any]], example: Mapping[str, Any]) -> Predictions:
    """Run the model on people given by values."""
    return scorer.predict(cells_of(rows, example))


def differs(said: Predictions) -> bool:
    """Tell whether two rows are decided differently."""
    return said.decision is not None and bool(said.decision[0] != said.decision[1])


def described(first: Mapping[str, Any], second: Mapping[str, Any], said: Predictions) -> dict[str, Any]:
    """Return a pair as evidence: scalars only, which a certificate may have."""
    record: dict[str, Any] = {}
    for side, row in ((FIRST, first), (SECOND, second)):
        record |= {f"{side}.{column}": value for column, value in row.items()}
    for index, side in enumerate((FIRST, SECOND)):
        if said.score is not None:
            record[f"score {side}"] = float(said.score[index])
        if said.decision is not None:
            record[f"decision {side}"] = int(said.decision[index])
    return record


def read(told: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the two people of evidence."""
    sides = []
    for side in (FIRST, SECOND):
        sides.append({key[len(side) + 1 :]: value for key, value in told.items() if key.startswith(f"{side}.")})
    return sides[0], sides[1]


def pair_of(problem: Problem, got: Answer) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the raw values of a witness."""
    assert got.pair is not None  # noqa: S101 -- asked for with a witness
    assert got.point is not None  # noqa: S101
    sides = []
    for cell in got.pair:
        point = list(got.point)
        point[problem.changing] = cell
        sides.append(problem.raw(point))
    return sides[0], sides[1]


def run_witness(scope: AuditScope, problem: Problem, got: Answer, *, flip: bool) -> dict[str, Any] | None:
    """Run a witness; None where there is none, or where rounding keeps it from flipping."""
    if got.point is None:
        return None
    first, second = pair_of(problem, got)
    said = ask(scope.context.scorer, [first, second], scope.people.columns)
    if flip and not differs(said):
        return None
    return described(first, second, said)


def of_somebody(scope: AuditScope, witness: Mapping[str, Any]) -> bool:
    """Tell whether a witness happens to have somebody's values."""
    for row in read(witness):
        same = np.ones(len(scope.people.rows), dtype=np.bool_)
        for name, value in row.items():
            same &= np.array([plain(cell) == value for cell in scope.people.columns[name].tolist()], dtype=np.bool_)
        if same.any():
            return True
    return False


class WitnessChart(EvidenceChart):
    """The two inputs side by side; what differs comes first."""

    name: ClassVar[str] = "witness"
    title: ClassVar[str] = "An input whose answer changes"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each column."""
        value = value[0] if isinstance(value, list) and value else value
        first, second = read(value)
        if not first or set(first) != set(second):
            raise ValueError("no witness")
        names = sorted(first, key=lambda name: first[name] == second[name])
        rows = [
            (name, _shown(first[name]), _shown(second[name]), "" if first[name] == second[name] else "changes")
            for name in names
        ]
        for what in ("score", "decision"):
            if f"{what} {FIRST}" in value:
                rows.append((f"the model's {what}", value[f"{what} {FIRST}"], value[f"{what} {SECOND}"], ""))
        return ChartTable(columns=("column", "one", "the other", "what changes"), rows=rows)

    @classmethod
    def example(cls) -> Any:
        """Return a small value, for the contract checks."""
        return {
            "first.sex": "Male",
            "first.age": 39,
            "second.sex": "Female",
            "second.age": 39,
            "score first": 0.6,
            "score second": 0.4,
        }


def _shown(value: Any) -> str | int | float | None:
    return "missing" if value is None else str(value) if isinstance(value, bool) else value
