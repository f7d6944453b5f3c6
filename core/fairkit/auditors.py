"""The interface of auditors: look at a model on a dataset, batch by batch, and say what is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from fairkit.data import Batch, Dataset
    from fairkit.findings import Finding
    from fairkit.metrics import Metric
    from fairkit.models import Predictions, Scorer, Task

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much is done, and how much there is (0 where that is not known)."""


def no_progress(doing: str, done: int, total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditContext:
    """What an auditor is given besides batches.

    Attributes
    ----------
    dataset
        The table with its roles.
    scorer
        The model bound to it; an auditor may call it on rows of its own.
    metrics
        The group metrics of the installed plugins.
    confidence
        Of every interval, in (0, 1).
    seed
        For `rng`.
    progress
        Tell it about long work.
    """

    dataset: Dataset
    scorer: Scorer
    metrics: Sequence[type[Metric]] = ()
    confidence: float = 0.95
    seed: int = 0
    progress: Progress = field(default=no_progress, compare=False)

    def rng(self, purpose: str) -> np.random.Generator:
        """Make a generator from the seed, its own for every purpose."""
        return np.random.default_rng([self.seed, *purpose.encode()])


@dataclass(frozen=True, slots=True, kw_only=True)
class NoParameters:
    """For auditors that have none."""


class Auditor(ABC):
    """Measures something about a model on a dataset.

    `measure` turns each batch into a partial result; partial results add up with ``+``, in any order, so
    that an audit can stream, and run on several machines; `findings` turns the total into findings.
    A complete example::

        from dataclasses import dataclass

        import numpy as np

        import fairkit

        class Coverage(fairkit.Auditor):
            \"\"\"The share of rows whose score is far from the threshold.\"\"\"

            name = "coverage"
            tasks = frozenset({"binary"})

            @dataclass(frozen=True, slots=True, kw_only=True)
            class Parameters:
                margin: float = fairkit.parameter(0.1, help="How far from 0.5.", minimum=0)

            def measure(self, batch, predictions, context):
                far = abs(predictions.score - 0.5) > self.parameters.margin
                return np.array([far.sum(), len(batch)])

            def findings(self, total, context):
                return [fairkit.Finding(auditor=self.name, metric="coverage", value=total[0] / total[1],
                                        notes=("No interval: the share is of these very rows.",))]

        @fairkit.hookimpl
        def fairkit_auditors():
            return [Coverage]

    Attributes
    ----------
    name
        What the user types after ``--auditor``.
    summary
        One sentence for ``fairkit plugins show``.
    `Parameters`
        A frozen dataclass; the command line builds ``--set NAME.KEY=VALUE`` from it.
    tasks
        The tasks that it can look at.
    citation
        Where the method is published.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    Parameters: ClassVar[type] = NoParameters
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass", "regression"})
    citation: ClassVar[str] = ""

    def __init__(self, parameters: Any = None) -> None:
        self.parameters = self.Parameters() if parameters is None else parameters

    def columns(self, context: AuditContext) -> Sequence[str]:
        """Name the columns that `measure` reads besides the model's."""
        return ()

    @abstractmethod
    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> Any:
        """Turn one batch into a partial result, which adds up with ``+``."""

    @abstractmethod
    def findings(self, total: Any, context: AuditContext) -> list[Finding]:
        """Turn the sum of the partial results into findings."""
