"""The interface of mitigators: what a method gets, what it gives back."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import numpy as np

from fairkit.data.roles import Roles, same_value
from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.models.scorer import ModelOptions, Task, choose_task
from fairkit.parameters.declare import parse_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.data.roles import Sensitive
    from fairkit.mitigation.rows import SpreadRows
    from fairkit.onnx.model import OnnxModel
    from fairkit.results.policy import Rule

Stage = Literal["pre", "in", "post"]


@dataclass(frozen=True, slots=True)
class Groups:
    """One way to split the rows of a table into groups.

    Attributes
    ----------
    split
        The columns and bin edges behind it; None where the codes were given as they are.
    names
        The groups' names; codes point into them.
    codes
        Each row's group, shape [n], int64.
    """

    split: Sensitive | None
    names: tuple[str, ...]
    codes: NDArray[np.int64]

    def sizes(self) -> NDArray[np.int64]:
        """Return the rows of each group, shape [len(names)]."""
        return np.bincount(self.codes, minlength=len(self.names)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows to learn from: plain arrays with roles.

    Attributes
    ----------
    columns
        Raw columns by name, each of shape [n]: text as objects (None where missing), whole numbers as int64,
        other numbers as float64 (NaN where missing). Holds the features and the sensitive columns.
    features
        The columns that the model gets, in order.
    target
        Shape [n], float64. Binary: 1 where the label is the favorable value, else 0. Multiclass: the index
        into `classes`. Regression: the value.
    groups
        The ways to split people, by name, first the one named first by the user.
    weights
        Sample weights, shape [n], nonnegative; None where all count the same.
    task
        binary, multiclass or regression.
    classes
        The label's values; in a binary task the favorable one is last.
    roles
        What the columns are for, as it goes into the model's metadata.
    name
        The table's name, for messages.
    """

    columns: Mapping[str, NDArray[Any]]
    features: tuple[str, ...]
    target: NDArray[np.float64]
    groups: Mapping[str, Groups] = field(default_factory=dict)
    weights: NDArray[np.float64] | None = None
    task: Task = "binary"
    classes: tuple[Any, ...] = ()
    roles: Roles = field(default_factory=Roles)
    name: str = "the data"

    def __len__(self) -> int:
        return len(self.target)

    @classmethod
    def from_dataset(cls, data: Dataset, task: Task | None = None) -> Self:
        """Read a dataset into memory.

        Parameters
        ----------
        data
            With a label.
        task
            Default: told by the label, as in an audit (`fairkit.models.choose_task`).

        Raises
        ------
        DataError
            There is no label, or it does not fit the task.
        """
        roles = fixed_roles(data)
        if roles.label is None:
            raise DataError(f"{data.name}: training needs the outcome column; name it with --label")
        values = data.profile.label_values
        chosen = choose_task(data, ModelOptions(task=task), None)
        batch = data.read(list(dict.fromkeys([*data.features, *_sensitive_columns(roles)])))
        target, classes = _target(chosen, batch.label, batch.favorable, values, data)
        return cls(
            columns=batch.columns(list(dict.fromkeys([*data.features, *_sensitive_columns(roles)]))),
            features=data.features,
            target=target,
            groups={
                split.name: Groups(split, tuple(data.group_names(split.name)), batch.groups[split.name])
                for split in roles.sensitive
            },
            weights=batch.weights,
            task=chosen,
            classes=classes,
            roles=roles,
            name=data.name,
        )

    def take(self, index: NDArray[Any]) -> Self:
        """Return the rows that a mask or an index array names."""
        return dataclasses.replace(
            self,
            columns={name: values[index] for name, values in self.columns.items()},
            target=self.target[index],
            groups={n: Groups(g.split, g.names, g.codes[index]) for n, g in self.groups.items()},
            weights=None if self.weights is None else self.weights[index],
        )

    def with_weights(self, weights: NDArray[np.float64] | None) -> Self:
        """Return the same rows with other weights."""
        return dataclasses.replace(self, weights=weights)

    def row_weights(self) -> NDArray[np.float64]:
        """Return the weights, shape [n]; ones where there are none."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def only_groups(self, wanted: str | None = None) -> Groups:
        """Return the split that a method works on: the named one, else the only one, else the intersection.

        Raises
        ------
        DataError
            There is no sensitive column, or no such split.
        """
        if not self.groups:
            raise DataError(f"{self.name}: this method needs a sensitive column; name it with --sensitive")
        if wanted is not None:
            if wanted not in self.groups:
                hint = did_you_mean(wanted, self.groups, what="splits")
                raise DataError(f"{self.name}: there is no sensitive split {wanted!r}. {hint}")
            return self.groups[wanted]
        return next(iter(self.groups.values())) if len(self.groups) == 1 else intersect(self.groups)


def intersect(groups: Mapping[str, Groups]) -> Groups:
    """Cross several splits: the groups are the combinations that occur, ``"Female & Black"``."""
    splits = list(groups.values())
    shape = [len(split.names) for split in splits]
    cells = np.ravel_multi_index([split.codes for split in splits], shape)
    present, codes = np.unique(cells, return_inverse=True)
    places = np.array(np.unravel_index(present, shape)).T
    names = tuple(
        " & ".join(split.names[i] for split, i in zip(splits, row, strict=True)) for row in places.tolist()
    )
    return Groups(_crossed([split.split for split in splits]), names, codes.astype(np.int64).ravel())


def _crossed(splits: list[Sensitive | None]) -> Sensitive | None:
    from fairkit.data.roles import Sensitive

    known = [split for split in splits if split is not None]
    columns = tuple(column for split in known for column in split.columns)
    if len(known) < len(splits) or len(set(columns)) < len(columns):
        return None
    return Sensitive(columns, tuple(edges for split in known for edges in split.edges))


class Progress(Protocol):
    """What a method calls as it works; shown as a bar on a terminal."""

    def __call__(self, step: int, total: int, **values: float) -> None:
        """Say that `step` of `total` steps are done, with numbers to show, such as ``loss=0.31``."""


def no_progress(step: int, total: int, **values: float) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How to run: what is not a parameter of the method.

    Attributes
    ----------
    seed
        Every random draw comes from ``numpy.random.default_rng(seed)``.
    threads
        How many threads to use; None leaves it to the libraries.
    learner
        The learner's name, for methods that take one; None is the method's first choice. Methods that say so
        take an estimator of scikit-learn's kind too.
    progress
        Call it at least once a second.
    """

    seed: int = 0
    threads: int | None = None
    learner: Any = None
    progress: Progress = no_progress

    def rng(self) -> np.random.Generator:
        """Make the generator of this run."""
        return np.random.default_rng(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a model says about rows.

    Attributes
    ----------
    score
        Shape [n]; binary: in [0, 1]; regression: the value. Multiclass: shape [n, k] probabilities.
    decision_probability
        The chance of the favorable decision, shape [n]: 0 or 1 for a deterministic model; None where there
        is no decision (regression, multiclass).
    """

    score: NDArray[np.float64]
    decision_probability: NDArray[np.float64] | None = None


class FittedModel(ABC):
    """A model in memory that can become one ONNX file.

    `details` holds what happened, as plain JSON values (histories, chosen settings); `notes` holds
    sentences that the user must read.
    """

    details: Mapping[str, Any]
    notes: tuple[str, ...]

    @abstractmethod
    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Score rows given as raw columns."""

    @abstractmethod
    def to_onnx(self) -> onnx.ModelProto:
        """Return the model as a graph over raw columns; metadata and the parity check are added by fairkit."""

    def held_out(self, table: Table, confidence: float) -> Mapping[str, Any]:
        """Return what the method itself measures on held-out rows, as plain JSON values for the details.

        Audits need nothing from here; it is for what only the method knows, such as a frontier. Sentences
        under ``"notes"`` are shown with the model's own.
        """
        return {}

    def audits(self, folder: Path) -> Mapping[str, Mapping[str, Any]]:
        """Name the auditors, besides ``group``, that show what the method is for, each with its parameters.

        The models before and after are audited by them on the held-out rows. Files that their parameters name,
        such as a fair metric, are written to `folder`, which is removed afterwards.
        """
        return {}

    def attachments(self, details: Mapping[str, Any]) -> Mapping[str, str]:
        """Return texts to be written beside the file, by suffix: ``{".frontier.svg": "<svg ..."}``."""
        return {}

    def runner(self, proto: onnx.ModelProto) -> Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]]:
        """Return a function from raw columns to the outputs of the exported graph, for the parity check.

        Override it where inputs are not one raw column each, of shape [rows, 1].
        """
        from fairkit.onnx.write.runtime import open_session, run_columns

        session = open_session(proto)
        return lambda columns: run_columns(session, columns)


class Mitigator(ABC):
    """A method that trains or repairs a model so that it treats people more alike.

    A complete plugin, in a module ``my_plugin.py`` whose distribution declares the entry point
    ``[project.entry-points.fairkit] my-reweigh = "my_plugin"``::

        from __future__ import annotations

        from dataclasses import dataclass

        import numpy as np

        import fairkit
        from fairkit.learners import fit_learner
        from fairkit.mitigators import FittedModel, Run, Table
        from fairkit.parameters import parameter


        class MyReweigh(fairkit.Mitigator):
            \"\"\"Weight rows so that group and label look independent.\"\"\"

            name = "my-reweigh"
            stage = "pre"
            tasks = ("binary",)
            citation = "Kamiran and Calders, 2011, doi:10.1007/s10115-011-0463-8"
            learners = ("lightgbm", "logistic")

            @dataclass(frozen=True, slots=True, kw_only=True)
            class Parameters:
                strength: float = parameter(1.0, help="0 changes nothing, 1 makes them independent.",
                                            minimum=0, maximum=1)

            def fit(self, table: Table, run: Run, **_: object) -> FittedModel:
                groups = table.only_groups()
                cells = groups.codes * 2 + table.target.astype(int)
                weights = table.row_weights()
                in_cell = np.bincount(cells, weights, minlength=2 * len(groups.names)).reshape(-1, 2)
                expected = np.outer(in_cell.sum(1), in_cell.sum(0)) / in_cell.sum()
                factor = np.divide(expected, in_cell, out=np.ones_like(expected), where=in_cell > 0)
                mixed = 1 + self.parameters.strength * (factor.ravel()[cells] - 1)
                return fit_learner(self.learner(run), table.with_weights(weights * mixed), run)


        @fairkit.hookimpl
        def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
            return [MyReweigh]

    Then ``fairkit mitigate --plugin my-reweigh --set strength=0.5 ...`` and
    ``fairkit.mitigate("my-reweigh", data, strength=0.5)`` work, and the class is a scikit-learn
    estimator through ``fairkit.mitigator("my-reweigh")``.

    Attributes
    ----------
    name
        What the user types.
    stage
        ``pre`` changes the data, ``in`` the training, ``post`` the decisions of a given model.
    tasks
        Any of binary, multiclass, regression.
    citation
        Where the method was published.
    learners
        The names of the learners that it takes, first the default; empty where the method is its own.
    engines
        The engines that it trains on besides this machine: ``("dask",)`` where it defines `fit_spread`.
    together
        Parameters along which several models are learned in one go, for less than one by one; see
        `fit_together`.

    Notes
    -----
    The inner class ``Parameters`` is a frozen dataclass; declare its fields with
    `fairkit.parameters.parameter`. Values that pass the declared types and ranges reach the method as
    ``self.parameters``; override `check` for what types and ranges cannot say.
    """

    name: ClassVar[str]
    stage: ClassVar[Stage]
    tasks: ClassVar[tuple[Task, ...]] = ("binary",)
    citation: ClassVar[str] = ""
    learners: ClassVar[tuple[str, ...]] = ()
    engines: ClassVar[tuple[str, ...]] = ()
    together: ClassVar[tuple[str, ...]] = ()

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """No parameters."""

    def __init__(self, parameters: Any = None) -> None:
        given = self.Parameters() if parameters is None else parameters
        # typed as Any so that a subclass may read its own fields without a cast
        self.parameters: Any = given
        self.check()

    @classmethod
    def with_values(cls, values: Mapping[str, Any]) -> Self:
        """Make one from ``key=value`` text or typed values; raises ParameterError."""
        return cls(parse_parameters(cls.Parameters, values, owner=cls.name))

    def check(self) -> None:  # noqa: B027 - most methods have nothing to add
        """Raise ParameterError where parameters contradict each other."""

    @abstractmethod
    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> FittedModel:
        """Learn from the rows.

        Parameters
        ----------
        table
            Rows to learn from.
        run
            Seed, threads, learner, progress.
        validation
            Rows to choose by, with groups of their own; None: the method splits some off if it needs them.
        model
            The base model, for ``post``.

        Raises
        ------
        FairkitError
            The data cannot be used by this method; the message says why.
        KeyboardInterrupt
            The user stopped it; nothing is kept.
        """

    @classmethod
    def fit_together(
        cls,
        methods: Sequence[Self],
        table: Table,
        run: Run,
        *,
        validation: Table | None = None,
        model: OnnxModel | None = None,
    ) -> Sequence[FittedModel]:
        """Learn several models that differ in one parameter of `together`, as a frontier asks for them.

        Override it where they can share work. Each must be as good a model for its parameters as `fit` gives,
        and all the same for the same methods in the same order.

        Parameters
        ----------
        methods
            Of this class.
        table, run, validation, model
            As for `fit`.

        Returns
        -------
        sequence of FittedModel
            One for each method, in their order.

        Raises
        ------
        FairkitError
            One of them cannot be learned: they are then learned one by one.
        """
        return [method.fit(table, run, validation=validation, model=model) for method in methods]

    def baseline(self, table: Table, run: Run) -> FittedModel:
        """Train the same learner without mitigation, for the comparison before and after."""
        from fairkit.learners import fit_learner

        return fit_learner(self.learner(run), table, run)

    def fit_spread(self, table: Table, rows: SpreadRows, run: Run) -> FittedModel:
        """Learn from rows that lie on the workers of an engine.

        Parameters
        ----------
        table
            Groups, target and weights of all rows; it has no columns.
        rows
            Reads the columns where they are, part by part, in the table's order.
        run
            Seed, threads, progress.

        Raises
        ------
        ParameterError
            The method trains on one machine only.
        """
        raise ParameterError(
            f"{self.name} trains on one machine only: leave out --engine (fairgbm trains on a cluster)"
        )

    def baseline_spread(self, table: Table, rows: SpreadRows, run: Run) -> FittedModel:
        """Train the same learner without mitigation where the rows are."""
        return self.fit_spread(table, rows, run)

    def model_options(self) -> ModelOptions | None:
        """Return what the user said about the base model's outputs; None where there is no base model."""
        return None

    def promises(self) -> Sequence[Rule]:
        """Name the limits that a trained model keeps under these parameters; the contract checks test them.

        A rule holds up to chance on new rows like those that the method was trained on, for the split that it
        worked on. Leave this as it is where nothing is promised about the model's decisions.
        """
        return ()

    def learner(self, run: Run) -> str:
        """Return the chosen learner's name, checked.

        Raises
        ------
        ParameterError
            The method takes no learner, or not this one.
        """
        if not self.learners:
            if run.learner is not None:
                raise ParameterError(f"{self.name} takes no learner: leave out --learner")
            return "lightgbm"
        chosen = run.learner or self.learners[0]
        if chosen not in self.learners:
            hint = did_you_mean(chosen, self.learners, what="learners")
            raise ParameterError(f"{self.name} cannot use the learner {chosen!r}. {hint}")
        return chosen


def fixed_roles(data: Dataset) -> Roles:
    """Return a dataset's roles with the bins that its first pass found and the features by name."""
    return dataclasses.replace(data.roles, sensitive=data.splits, features=data.features)


def target_of(data: Dataset) -> tuple[Any, ...]:
    """Return the label's values in a binary task, the favorable one last."""
    values, favorable = data.profile.label_values, data.roles.favorable
    good = next(value for value in values if same_value(value, favorable))
    return (*(value for value in values if value != good), good)


def _sensitive_columns(roles: Roles) -> list[str]:
    return [column for split in roles.sensitive for column in split.columns]


def _target(
    task: Task, label: Any, favorable: Any, values: tuple[Any, ...], data: Dataset
) -> tuple[NDArray[np.float64], tuple[Any, ...]]:
    if task == "binary":
        good = next((one for one, yes in zip(label, favorable, strict=True) if yes), None)
        others = tuple(value for value in values if value != good)
        return favorable.astype(np.float64), (*others, good)
    if task == "multiclass":
        index = {value: i for i, value in enumerate(values)}
        return np.array([index[value] for value in label.tolist()], dtype=np.float64), values
    if label.dtype.kind not in "ifb":
        raise DataError(f"{data.name}: regression needs numbers, but the label {data.roles.label!r} is text")
    return label.astype(np.float64), ()
