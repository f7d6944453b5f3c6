"""The interface of mitigators: what a method gets, what it gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, runtime_checkable

from fairkit.capabilities import Capability
from fairkit.data.table import Groups, Table
from fairkit.errors import ParameterError, did_you_mean
from fairkit.fitted import FittedModel, Prediction, Run
from fairkit.learners import INSTALLED, LEARNERS, find_learner, fit_by_name
from fairkit.parameters import parse_parameters
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit.data.task import Task
    from fairkit.results.rules import Rule
    from fairkit.settings import ModelOptions

__all__ = [
    "Capability", "FittedModel", "Groups", "Mitigator", "Prediction", "RepairsModels", "Run", "Stage", "Table",
    "TrainsTogether",
]  # fmt: skip

Stage = Literal["pre", "in", "post"]


class Mitigator(ABC):
    """A method that trains or repairs a model so that it treats people more alike.

    A complete plugin, in a module ``my_plugin.py`` whose distribution declares the entry point
    ``[project.entry-points.fairkit] my-reweigh = "my_plugin"``::

        from __future__ import annotations

        from dataclasses import dataclass

        import numpy as np

        import fairkit
        from fairkit_repair.learners import fit_learner
        from fairkit.data.table import Table
        from fairkit.fitted import FittedModel, Run
        from fairkit.mitigators import Capability
        from fairkit.parameters import parameter


        class MyReweigh(fairkit.Mitigator):
            \"\"\"Weight rows so that group and label look independent.\"\"\"

            name = "my-reweigh"
            stage = "pre"
            tasks = ("binary",)
            citation = "Kamiran and Calders, 2011, doi:10.1007/s10115-011-0463-8"
            learners = ("lightgbm", "logistic")
            capabilities = (
                Capability(constraints=("demographic_parity",), dial="strength", steps=(1.0, 0.5), of_limit=False),
            )

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
        Any of binary, multiclass, regression, ranking.
    citation
        Where the method was published.
    learners
        The names of the learners that it takes, first the default; empty where the method is its own. ``"*"`` among
        them (`fairkit.learners.INSTALLED`) takes the learners that plugins bring, too.
    capabilities
        Which constraints of a policy it can meet and how, whether the model then reads the group or is randomized, and
        what that costs (`Capability`). A search under a policy tries a method by these; without any it leaves it out.

    Notes
    -----
    The inner class ``Parameters`` is a frozen dataclass; declare its fields with
    `fairkit.parameters.parameter`. Values that pass the declared types and ranges reach the method as
    ``self.parameters``; override `check` for what types and ranges cannot say. What only some methods do is in
    contracts of their own, which a method meets by having what they name: `TrainsTogether`,
    `RepairsModels`.
    """

    name: ClassVar[str]
    stage: ClassVar[Stage]
    tasks: ClassVar[tuple[Task, ...]] = ("binary",)
    citation: ClassVar[str] = ""
    learners: ClassVar[tuple[str, ...]] = ()
    capabilities: ClassVar[tuple[Capability, ...]] = ()

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """No parameters."""

    def __init__(self, parameters: Any = None) -> None:
        parameters_given = self.Parameters() if parameters is None else parameters
        # typed as Any so that a subclass may read its own fields without a cast
        self.parameters: Any = parameters_given
        self.check()

    @classmethod
    def with_values(cls, values: Mapping[str, Any]) -> Self:
        """Make one from ``key=value`` text or typed values; raises ParameterError."""
        return cls(parse_parameters(cls.Parameters, values, owner=cls.name))

    def check(self) -> None:  # noqa: B027 - most methods have nothing to add
        """Raise ParameterError where parameters contradict each other."""

    @abstractmethod
    def fit(self, table: Table, run: Run, *, validation: Table | None = None, model: Any | None = None) -> FittedModel:
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
            The base model, a `fairkit.OnnxModel`, for ``post``.

        Raises
        ------
        FairkitError
            The data cannot be used by this method; the message says why.
        KeyboardInterrupt
            The user stopped it; nothing is kept.
        """

    def baseline(self, table: Table, run: Run) -> FittedModel:
        """Train the same learner without mitigation, for the comparison before and after."""
        return fit_by_name(self.learner(run), table, run)

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
                raise ParameterError(f"{self.name} takes no learner: leave out `learner`")
            return "lightgbm"
        named = [name for name in self.learners if name != INSTALLED]
        chosen = run.learner or named[0]
        if chosen in named:
            return chosen
        if INSTALLED in self.learners and chosen not in LEARNERS:
            find_learner(chosen)
            return chosen
        hint = did_you_mean(chosen, named, what="learners")
        raise ParameterError(f"{self.name} cannot use the learner {chosen!r}. {hint}")


@runtime_checkable
class TrainsTogether(Protocol):
    """A method that learns several models along one parameter in one go, for less than one by one.

    Attributes
    ----------
    together
        The names of such parameters.
    """

    together: ClassVar[tuple[str, ...]]

    @classmethod
    def fit_together(
        cls,
        methods: Sequence[Any],
        table: Table,
        run: Run,
        *,
        validation: Table | None = None,
        model: Any | None = None,
    ) -> Sequence[FittedModel]:
        """Learn models that differ in one parameter of `together`, as a frontier asks for them.

        Must return models equivalent to those of `fit`, the same ones for the same methods in the same order.

        `methods`: of this class; `table`, `run`, `validation`, `model`: as for `Mitigator.fit`; returns one for each
        method, in their order.
        """
        ...


@runtime_checkable
class RepairsModels(Protocol):
    """A method that repairs a given model, and knows how its outputs are to be read."""

    def model_options(self) -> ModelOptions:
        """Return the user's options for the base model's outputs."""
        ...
