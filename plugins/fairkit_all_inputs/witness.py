"""A witness: an input at two values of what changes, run by the model itself, shown side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.charts import ChartTable, EvidenceChart
from fairkit_all_inputs.bounds.problem import plain

if TYPE_CHECKING:
    from fairkit.models.scorer import Predictions, Scorer
    from fairkit_all_inputs.bounds.problem import Problem
    from fairkit_all_inputs.bounds.searching import Answer
    from fairkit_all_inputs.scope import AuditScope

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
