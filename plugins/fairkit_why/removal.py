"""After a removal: a model with the other group's values of a column, and training again without the column.

Training without the column is compared with training with it, on the same rows: the column is all that differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import value_text
from fairkit.errors import DataError, ParameterError
from fairkit.fitted import Run
from fairkit_why.asks import OneClass
from fairkit_why.comparison import VARIANCE_ROWS
from fairkit_why.gaps import finding_of, group_values, parameters_of
from fairkit_why.limits import Noise, shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.results.findings import Finding
    from fairkit_why.comparison import Divided, Pair
    from fairkit_why.gaps import Why

    Array = NDArray[np.float64]

LEARNER = "lightgbm"
ABOUT = (
    "Trained again, with and without, by fairkit's own boosted trees on one training table: another learner, or other "
    "training rows, may say otherwise."
)
AUDITED = "The training table is the audited one: on the rows of its training a model may have learned gaps by heart."


def refitted(why: Why, pair: Pair, divided: Sequence[Divided | Finding]) -> list[Finding]:
    """Return the gap after training again without each column that was named, or that carries the most."""
    from fairkit_why.comparison import Divided

    columns = list(why.chosen.without)
    first = next((one for one in divided if isinstance(one, Divided)), None)
    if not columns and first is not None:
        columns = [first.players[int(np.argmax(np.abs(first.values)))]]
    training, audited = _training(why)
    columns_of = dict(zip(why.names, why.players, strict=True))
    findings = []
    for name in columns:
        if name not in columns_of:
            raise ParameterError(f"why.without: {name!r} is no column of the model; it reads: {', '.join(columns_of)}")
        findings.append(_without(why, pair, name, columns_of[name], training, (AUDITED,) * audited))
    return findings


def _training(why: Why) -> tuple[Table, bool]:
    """Read the table to train on, with the roles of the audit, and tell whether it is the audited table."""
    from fairkit.data.loading import load_data
    from fairkit.data.table import Table

    roles, columns = why.context.dataset.roles, why.context.scorer.columns
    data = load_data(
        str(why.chosen.refit),
        label=roles.label,
        favorable=roles.favorable,
        sensitive=[split.text for split in roles.sensitive],
        features=list(columns),
        weights=roles.weights,
    )
    if roles.label is None:
        raise DataError("why.refit: training needs the outcome column; name it with `label`")
    several = isinstance(why.context.scorer, OneClass)
    table = Table.from_dataset(data, "multiclass" if several else why.context.scorer.task)
    return table, data.sha256 == why.context.dataset.sha256


def _said(why: Why, table: Table, left_out: Sequence[str], rows: Table | None = None) -> Array:
    """Train without some columns, and return what the model says about the audit's rows."""
    import dataclasses

    from fairkit_repair.learners.fit import fit_learner

    features = tuple(name for name in table.features if name not in left_out)
    if not features:
        raise ParameterError("why.without: nothing is left to train on")
    table = table if rows is None else rows
    columns = {name: table.columns[name] for name in features}
    model = fit_learner(LEARNER, dataclasses.replace(table, columns=columns, features=features), Run(seed=0, threads=1))
    said = model.predict({name: why.columns[name] for name in features})
    if table.task == "multiclass":
        names = [value_text(value) for value in table.classes]
        favorable = value_text(why.context.dataset.roles.favorable)
        return np.asarray(said.score.argmax(axis=1) == names.index(favorable), dtype=float)
    return np.asarray(said.score if said.decision_probability is None else said.decision_probability, dtype=float)


def _without(
    why: Why, pair: Pair, name: str, columns: Sequence[str], training: Table, notes: tuple[str, ...]
) -> Finding:
    with_columns, gone = _said(why, training, ()), _said(why, training, columns)
    changes = []
    rng = why.context.rng("why refit")
    for _ in range(why.chosen.refits if why.chosen.refits > 1 else 0):
        rows = training.take(rng.integers(0, len(training), len(training)))
        moved = _said(why, training, columns, rows) - _said(why, training, (), rows)
        changes.append(_gap(pair, moved, 0.0)[0])
    extra = float(np.var(changes, ddof=1)) if changes else 0.0
    gap, means, noise = _gap(pair, gone, extra)
    change, _, spread = _gap(pair, gone - with_columns, extra)

    most = np.inf if why.context.scorer.task == "regression" else 1.0
    gap = float(np.clip(gap, -most, most))
    evidence: dict[str, Any] = {
        "with": _gap(pair, with_columns, 0.0)[0],
        "change": change,
        "change_interval": list(spread.around(change)(why.context.confidence)),
        **_computed(why, pair, name),
        "training_rows": len(training),
        "refits": why.chosen.refits,
        "refit_deviation": extra**0.5 if changes else None,
    }
    compared = f"The gap of models trained with {name}: {evidence['with']:.3f}, and without: {gap:.3f}."
    about = () if changes else ("The interval is of the rows of the audit, for this training set.",)
    return finding_of(
        why, pair, "gap_without", gap, parameters=parameters_of(pair, without=name), evidence=evidence,
        groups=group_values(pair, means), notes=(compared, ABOUT, *about, *notes),
        interval_at=noise.around(gap, most),
    )  # fmt: skip


def _gap(pair: Pair, values: Array, extra: float) -> tuple[float, tuple[float, float], Noise]:
    """Return the difference of both groups' means, with the variance of the training added."""
    both = values[pair.rows[0]], values[pair.rows[1]]
    gap, means, noise = pair.gap(both, 1.0)
    return gap, means, Noise(noise.variance + extra, noise.degrees, noise.reach, noise.rows)


def _computed(why: Why, pair: Pair, name: str) -> dict[str, Any]:
    """Return the gap that this model would show with the other group's values of a column, for either group.

    Each row gets the value of one random row of the other group: v(N) - v(N∖j), and v({j}) - v(∅).
    """
    from fairkit_why.asks import asks_of

    kind = "score" if why.context.scorer.task == "regression" else "decision"
    f = pair.each(kind)
    assert f is not None  # noqa: S101 -- a model gives one of both
    sizes = [min(len(rows), VARIANCE_ROWS) for rows in pair.rows]
    every = np.concatenate([rows[:size] for rows, size in zip(pair.rows, sizes, strict=True)])
    columns = {column: values[every] for column, values in why.columns.items()}
    predictions = np.concatenate([f[0][: sizes[0]], f[1][: sizes[1]]])
    asks = asks_of(why.context.scorer, kind, columns, why.players, predictions)
    player, rng = why.names.index(name), pair.seed(why.context.scorer.info.name, f"without {name}")
    record: dict[str, Any] = {}
    for mine, label in ((0, "group"), (1, "reference")):
        own = np.arange(sizes[mine]) + (0 if mine == 0 else sizes[0])
        others = rng.integers(0, sizes[1 - mine], sizes[mine]) + (sizes[0] if mine == 0 else 0)
        from_own = np.ones((len(own), len(why.players)), dtype=np.bool_)
        from_own[:, player] = False
        change = (asks.mixed(own, others, from_own) - predictions[own]) * (1.0 if mine == 0 else -1.0)
        w = pair.weights[mine]
        part = shares(None if w is None else w[: sizes[mine]], sizes[mine])
        moved = float(part @ change)
        noise = Noise(part**2 @ (change - moved)[:, None] ** 2, np.array([sizes[mine] - 1.0]), np.ones(1), pair.sizes)
        low, high = noise.around(moved)(why.context.confidence)
        record[f"computed_{label}"] = {"change": moved, "low": low, "high": high}
    return record
