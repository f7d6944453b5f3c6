"""Small data sets made by formula, and models on them, for the checks of plugins."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.loading import load_data
from fairkit.data.task import Task
from fairkit.errors import DataError, FairkitError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit_onnx.write.trees import Tree


__all__ = ["COLUMNS", "FAVORABLE", "NUMBERS", "Task", "sample_data", "sample_model"]


FAVORABLE = "yes"
NUMBERS = ("age", "income", "hours", "tenure", "debt")
COLUMNS = ("sex", "race", *NUMBERS, "job")
"""The columns of the sample data besides its label."""
CONDITIONS: Mapping[str, Mapping[str, object]] = {
    "weights": {"weights": "stands_for"},
    "clusters": {"cluster": "family"},
    "strata": {"within": ["region"]},
    "reference": {"reference": ["race=B"]},
    "group_probabilities": {"sensitive_probability": ["tribe=p_x,p_y"]},
    "missing_groups": {},
    "missing_labels": {},
}
"""What the sample data may have besides, and the roles that say so."""
_ARMS = ((1, ("female", "male")), (2, ("A", "B", "C")))
_TYPICAL = (44.0, 33.0, 39.0, 6.0, 0.4)
_SLOPES = (0.03, 0.08, 0.05, 0.04, -0.9)


def sample_data(
    task: Task = "binary",
    *,
    rows: int = 600,
    seed: int = 0,
    sensitive: tuple[str, ...] = ("sex", "race"),
    condition: str | None = None,
) -> Dataset:
    """Draw people whose outcome depends on what they do and on who they are.

    Parameters
    ----------
    task
        The label ``good`` is ``yes`` or ``no``; one of ``high``, ``low``, ``middle``; a number; or, of rankings, a
        grade from 0 to 3, beside queries of ten people each in the column ``opening``; or, of answers, a number in
        [0, 1] beside ``document`` and ``name``, with all groups on every document of twelve rows.
    rows, seed
        How many, and which draw.
    sensitive
        Names among ``sex`` and ``race``.
    condition
        One of `CONDITIONS`, so strong that whatever depends on it changes: people with good numbers weigh five
        times as much, are of one family, of one region or of one tribe, or lack a race or a label.

    Returns
    -------
    Dataset
        Text: ``sex``, ``race`` (three values), ``job`` (some missing). Numbers: ``age`` (whole), ``income``
        (some missing), ``hours``, ``tenure``, ``debt``. Women and two of
        the races have the favorable outcome less often than their numbers would say.
    """
    rng = np.random.default_rng([seed, rows])
    sex = np.array(["female", "male"], dtype=object)[(rng.random(rows) < 0.55).astype(int)]
    race = np.array(["A", "B", "C"], dtype=object)[rng.choice(3, rows, p=[0.6, 0.25, 0.15])]
    job = np.array(["clerk", "maker", "seller"], dtype=object)[rng.choice(3, rows, p=[0.4, 0.35, 0.25])]
    if task == "answers":
        sex, race = (np.array(v, dtype=object)[np.arange(rows) // n % len(v)] for n, v in _ARMS)
    age = rng.integers(18, 70, rows)
    income = np.round(20 + 8 * (sex == "male") + 0.2 * age + 6 * rng.standard_normal(rows), 2)
    hours = np.round(38 + 3 * (job == "maker") + 4 * rng.standard_normal(rows), 1)
    tenure = np.round(6 + 2 * (sex == "male") + 3 * rng.standard_normal(rows), 1)
    debt = np.round(0.4 + 0.05 * (race != "A") + 0.2 * rng.standard_normal(rows), 3)
    numbers = np.column_stack([age, income, hours, tenure, debt])
    index = (numbers - _TYPICAL) @ np.array(_SLOPES) + 0.8 * (sex == "male") - 0.6 * (race != "A")
    index += 0.7 * rng.standard_normal(rows)
    income[rng.random(rows) < 0.05] = np.nan
    job[rng.random(rows) < 0.05] = None
    values = (sex, race, age, income, hours, tenure, debt, job)
    columns: dict[str, NDArray[np.generic]] = dict(zip(COLUMNS, values, strict=True))
    columns["good"] = _label(task, index)
    roles = _with_condition(condition, columns, index, task) if condition else {}
    if task == "ranking":
        columns["opening"] = np.arange(rows) // 10
    if task == "answers":
        columns |= {"document": np.arange(rows) // 12, "name": np.arange(rows) % 240}
        name = f"{rows} sample answers"
        return load_data(columns, predictions={"answer": "good"}, sensitive=list(sensitive), name=name, **roles)
    return load_data(
        columns,
        label="good",
        query="opening" if task == "ranking" else None,
        favorable=FAVORABLE if task in ("binary", "table") else None,
        sensitive=list(sensitive),
        name=f"{rows} sample rows",
        **roles,
    )


def _with_condition(
    condition: str, columns: dict[str, NDArray[np.generic]], index: NDArray[np.float64], task: Task
) -> Any:
    """Give the columns what a condition needs, and return its roles."""
    rank = np.argsort(np.argsort(index, kind="stable"))
    good = rank > 2 * len(index) // 3
    if task == "answers":  # whole documents: each needs an answer for every group
        good = np.arange(len(index)) // 12 % 3 == 0
        if condition == "missing_labels":
            raise DataError("answers have no label")
    missing = {"missing_groups": "race", "missing_labels": "good"}.get(condition)
    if missing is not None:
        values_kept = [None if lost else value for value, lost in zip(columns[missing], good, strict=True)]
        columns[missing] = np.array(values_kept, dtype=object)
        return {}
    named = CONDITIONS[condition]
    for column in ("stands_for", "family", "region", "p_x", "p_y"):
        if column in str(named):
            values = {"stands_for": 1 + 4 * good, "family": rank // 10, "region": rank * 3 // len(index)}
            columns[column] = values.get(column, np.where(good == (column == "p_x"), 0.9, 0.1))
    return named


def sample_model(task: Task = "binary", *, trees: bool = False) -> bytes:
    """Return an ONNX model on the sample data: a linear index of its numbers, its jobs and of being male.

    It has one output, ``score`` (multiclass: ``probabilities``), and says nothing about the data: roles come with
    the data. A missing number is taken as typical. With `trees` each column counts by one test instead of its value.
    """
    from fairkit_onnx.write.encode import Encoder, NumberColumn, TextColumn
    from fairkit_onnx.write.estimators import add_linear, add_link
    from fairkit_onnx.write.graph import GraphBuilder
    from fairkit_onnx.write.trees import add_ensemble

    numbers = [NumberColumn(name, shift=at, fill=at) for name, at in zip(NUMBERS, _TYPICAL, strict=True)]
    texts = [TextColumn("sex", ("male",), "onehot"), TextColumn("job", ("clerk", "maker", "seller"), "onehot")]
    encoder = Encoder((*numbers, *texts))
    slopes = np.array([*_SLOPES, 0.8, 0.1, -0.1, 0.0])
    bases = [-0.2]
    if task == "multiclass":
        slopes, bases = np.stack([slopes, -slopes, 0 * slopes]), [-0.3, -0.3, 0.3]
    graph = GraphBuilder()
    matrix = encoder.add_to(graph)
    if trees:
        margin = add_ensemble(graph, matrix, _stumps(np.atleast_2d(slopes)), base=bases)
    else:
        margin = add_linear(graph, matrix, slopes, bases)
    if task == "multiclass":
        graph.output("probabilities", add_link(graph, margin, task), width=None)
    else:
        graph.output("score", add_link(graph, margin, "regression" if task == "ranking" else task))
    return bytes(graph.build().SerializeToString(deterministic=True))


def _stumps(slopes: NDArray[np.float64]) -> list[Tree]:
    """Return for each feature a tree of one test; a leaf has a weight of every output, slopes of shape [outputs, d]."""
    from fairkit_onnx.write.trees import Node

    signs = np.where(slopes < 0, -1.0, 1.0) * (slopes != 0)
    result = []
    for index, weights in enumerate((signs * np.sqrt(np.abs(slopes))).T):
        cut = 0.0 if index < len(NUMBERS) else 0.5
        leaves = [Node("LEAF", weights=tuple((side * weights).tolist())) for side in (-0.5, 0.5)]
        result.append([Node("BRANCH_LEQ", feature=index, value=cut, yes=1, no=2), *leaves])
    return result


def _label(task: Task, index: NDArray[np.float64]) -> NDArray[np.generic]:
    if task == "regression":
        return np.round(index, 4)
    if task == "answers":
        return np.round(1 / (1 + np.exp(-index)), 4)
    if task == "ranking":
        return np.digitize(index, [-0.4, 0.2, 0.8])
    if task == "multiclass":
        names = np.array(["low", "middle", "high"], dtype=object)
        return np.asarray(names[(index > -0.4).astype(int) + (index > 0.4)])
    return np.where(index > 0.2, FAVORABLE, "no").astype(object)


# How a check says that a contract is broken.


class ContractError(AssertionError):
    """A plugin does not do what its interface says; the message says what, where, and how to fix it."""


def require(condition: object, message: str) -> None:
    """Raise `ContractError` with the message unless the condition holds."""
    if not condition:
        raise ContractError(message)


@contextmanager
def unchanged(arrays: Callable[[], Mapping[str, Any]], where: str) -> Iterator[None]:
    """Run a block that must leave arrays as they are.

    Parameters
    ----------
    arrays
        Returns them by name, before and after.
    where
        What the message begins with, before the name.
    """
    before = {name: np.array(values) for name, values in arrays().items()}
    yield
    for name, values in arrays().items():
        old = before[name]
        same = (
            old.tolist() == values.tolist()
            if old.dtype.kind == "O"
            else np.array_equal(old, values, equal_nan=old.dtype.kind == "f")
        )
        require(same, f"{where}{name} was changed; work on a copy")


@contextmanager
def only_fairkit_errors(doing: str, *, required: bool = False) -> Iterator[None]:
    """Let a `FairkitError` pass quietly and turn any other exception into `ContractError`.

    Parameters
    ----------
    doing
        What was tried, for the message: "parameters of the wrong type were given".
    required
        Whether there must be an error.
    """
    try:
        yield
    except FairkitError as error:
        require(len(str(error)) > 10, f"{doing}: the error says nothing: {error!r}")
        return
    except Exception as error:
        raise ContractError(
            f"{doing}: it raised {type(error).__name__}: {error}. What users can cause is a FairkitError that "
            "says what is wrong and how to fix it"
        ) from error
    require(not required, f"{doing}: nothing was raised; this needs a FairkitError")


# Watching that nothing is written: the working folder and the folder of temporary files stay empty.


@contextmanager
def nothing_left_behind(doing: str) -> Iterator[Path]:
    """Run a block in an empty working folder with empty room for temporary files; both must be empty after."""
    before, temporary = Path.cwd(), tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="fairkit-check-") as folder:
        work, room = Path(folder) / "work", Path(folder) / "tmp"
        work.mkdir()
        room.mkdir()
        os.chdir(work)
        tempfile.tempdir = str(room)
        try:
            yield work
            left = [str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()]
        finally:
            os.chdir(before)
            tempfile.tempdir = temporary
    require(not left, f"{doing} left files behind: {', '.join(sorted(left))}")
