"""Learners: the interface of what trains on encoded rows, and learners by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fairkit.errors import ParameterError, did_you_mean
from fairkit.support.calls import named_class
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit.support.lazy_package import imported

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.fitted import FittedModel, Run

TextMode = Literal["ordinal", "onehot"]
"""How a column of text becomes numbers: one code for each value, or one column for each."""

_BUILT_IN = {
    "lightgbm": "fairkit_repair.learners:LightGBM",
    "xgboost": "fairkit_repair.learners:XGBoost",
    "logistic": "fairkit_repair.learners:Logistic",
    "linear": "fairkit_repair.learners:Linear",
    "forest": "fairkit_repair.learners:Forest",
    "mlp": "fairkit_repair.learners:MLP",
}
_FIT, _AROUND = "fairkit_repair.learners:fit_learner", "fairkit_repair.learners:around"
LEARNERS = tuple(_BUILT_IN)
"""The built-in learners' names. ``logistic`` is for classes, ``linear`` for regression, the others for all tasks."""
INSTALLED = "*"
"""Stands in a method's `learners` for whatever learners plugins bring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRows:
    """What a learner is trained on.

    Attributes
    ----------
    matrix
        Shape [n, d], float32. Text is one column per value, or codes in the columns `categorical`.
    target
        Shape [n]: 0 and 1 (1: favorable), class codes from 0, or values.
    task
        binary, multiclass or regression.
    run
        Seed and threads.
    weights
        Shape [n], nonnegative; None where all rows count the same.
    categorical
        Columns of `matrix` that hold codes.
    """

    matrix: NDArray[np.float32]
    target: NDArray[np.float64]
    task: Task
    run: Run
    weights: NDArray[np.float64] | None = None
    categorical: list[int] = field(default_factory=list)


class Learner(ABC):
    """What trains a model on encoded rows; ``--learner NAME`` chooses it in every method that takes any learner.

    A complete plugin, in a module ``my_plugin.py`` whose distribution declares the entry point
    ``[project.entry-points.fairkit] my-plugin = "my_plugin"``::

        from __future__ import annotations

        import fairkit
        from fairkit.learners import EncodedRows, Learner


        class ExtraTrees(Learner):
            \"\"\"Extremely randomized trees of scikit-learn.\"\"\"

            name = "extra-trees"
            tasks = ("binary", "multiclass")
            citation = "Geurts, Ernst and Wehenkel, 2006, doi:10.1007/s10994-006-6226-1"

            def fit(self, rows: EncodedRows, settings):
                from sklearn.ensemble import ExtraTreesClassifier

                model = ExtraTreesClassifier(**{"random_state": rows.run.seed, "min_samples_leaf": 5} | settings)
                return model.fit(rows.matrix, rows.target.astype(int), sample_weight=rows.weights)


        @fairkit.hookimpl
        def fairkit_learners():
            return [ExtraTrees]

    Then ``fairkit mitigate --plugin reweigh --learner extra-trees ...`` works.

    Attributes
    ----------
    name
        What the user types.
    tasks
        Any of binary, multiclass, regression.
    text
        How text columns reach it: ``onehot``, one column per value, or ``ordinal``, codes in `EncodedRows.categorical`.
    scaled
        Whether numbers are standardised and missing ones filled (a column of its own says where); otherwise numbers
        stay as they are, and missing ones are NaN.
    citation
        Where it was published.
    """

    name: ClassVar[str]
    tasks: ClassVar[tuple[Task, ...]] = ("binary", "multiclass", "regression")
    text: ClassVar[TextMode] = "onehot"
    scaled: ClassVar[bool] = False
    citation: ClassVar[str] = ""

    @abstractmethod
    def fit(self, rows: EncodedRows, settings: dict[str, Any]) -> Any:
        """Train.

        Parameters
        ----------
        rows
            To learn from; weights count.
        settings
            The user's, over your defaults: parameters of the library itself.

        Returns
        -------
        object
            An estimator of LightGBM, XGBoost or scikit-learn, a torch module, or a
            `fairkit_onnx.write.estimators.GraphEstimator`, which brings its own way into a graph.

        Raises
        ------
        MissingExtraError
            The library is not installed.
        """


class EstimatorName(str):
    """The name of a learner that is an estimator of scikit-learn's kind, and the estimator, which is never fitted."""

    estimator: Any

    def __new__(cls, estimator: Any) -> EstimatorName:
        """Name an estimator by its class."""
        named = super().__new__(cls, type(estimator).__name__)
        named.estimator = estimator
        return named

    def __reduce__(self) -> Any:
        return EstimatorName, (self.estimator,)


def as_learner(learner: Any) -> str | None:
    """Return what was given as a learner as a name, that of an estimator too."""
    if learner is None or isinstance(learner, str):
        return learner
    if isinstance(learner, type) or not (hasattr(learner, "fit") and hasattr(learner, "predict")):
        call = f"; of a class an instance, {learner.__name__}()" if isinstance(learner, type) else ""
        raise ParameterError(
            f"`learner` is {named_class(learner)}, and takes a name ({', '.join(LEARNERS)}, or a plugin's) or an "
            f"estimator of scikit-learn's kind{call}"
        )
    return EstimatorName(learner)


LearnerSource = Callable[[], Iterable[type[Learner]]]
_sources: list[LearnerSource] = []


def add_source(source: LearnerSource) -> None:
    """Add a function that returns more learners: whoever finds plugins calls this, and nothing here knows them."""
    _sources.append(source)


def find_learner(name: str, task: Task | None = None) -> type[Learner]:
    """Return a learner's class by its name.

    Raises
    ------
    ParameterError
        There is none, several plugins bring one of that name, or it is for other tasks.
    """
    if isinstance(name, EstimatorName):
        learner: type[Learner] = imported(_AROUND)(name.estimator)
    elif name in _BUILT_IN:
        learner = imported(_BUILT_IN[name])
    else:
        offered = [learner for source in _sources for learner in source()]
        matches = [each for each in offered if each.name == name]
        if not matches:
            names = [*LEARNERS, *(each.name for each in offered)]
            raise ParameterError(f"there is no learner {name!r}. {did_you_mean(name, names, what='learners')}")
        if len(matches) > 1:
            modules = " and ".join(sorted(each.__module__ for each in matches))
            raise ParameterError(f"several plugins bring a learner {name!r}: {modules}; uninstall all but one")
        learner = matches[0]
    if task is not None and task not in learner.tasks:
        raise ParameterError(_for_other_tasks(learner, task))
    return learner


def _for_other_tasks(learner: type[Learner], task: Task) -> str:
    if learner.name == "linear":
        return "the learner 'linear' predicts numbers; for classes use 'logistic'"
    if learner.name == "logistic":
        return "the learner 'logistic' predicts classes; for numbers use 'linear'"
    return f"the learner {learner.name!r} is for {' and '.join(learner.tasks)} tasks, not for a {task} one"


def fit_by_name(name: str, table: Table, run: Run) -> FittedModel:
    """Train a learner on raw columns; see `fairkit_repair.learners.fit_learner`, which does it."""
    model: FittedModel = imported(_FIT)(name, table, run)
    return model
