"""The interface of learners: what trains on encoded rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.fitted import Run
    from fairkit_onnx.write.encode import TextMode


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
