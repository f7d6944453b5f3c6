"""What pre-processing methods share: the rows or their encoding are changed, then any learner is trained on them."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from fairkit.learners import INSTALLED
from fairkit.mitigators import Mitigator
from fairkit.parameters import parameter
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_repair.learners import fit_learner

if TYPE_CHECKING:
    from fairkit.data.table import Table
    from fairkit.fitted import FittedModel, Run
    from fairkit.mitigators import Stage
    from fairkit_onnx.write.encode import Encoding


@dataclass(frozen=True, slots=True, kw_only=True)
class PreParameters:
    """Parameters of every pre-processing method."""

    settings: Mapping[str, Any] = parameter(
        {}, help="Parameters of the learner's library, such as settings.max_depth=4."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the learner is trained on.

    `table`: the rows, with the labels and weights that the method wants; `encoder`: how raw columns become numbers, at
    prediction too; None for what suits the learner; `details`: what happened, as plain JSON values; `notes`: sentences
    that the user must read.
    """

    table: Table
    encoder: Encoding | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class PreProcessor(Mitigator):
    """A method that changes what a learner is trained on; subclasses say how in `prepare`.

    A complete one, which leaves out the rows whose weight is zero::

        from __future__ import annotations

        import fairkit
        from fairkit.data.table import Table
        from fairkit.fitted import Run
        from fairkit_repair.preprocess import Prepared, PreProcessor


        class OnlyWeighed(PreProcessor):
            \"\"\"Train on the rows that have a weight.\"\"\"

            name = "only-weighed"

            def prepare(self, table: Table, run: Run) -> Prepared:
                return Prepared(table=table.take(table.row_weights() > 0))


        @fairkit.hookimpl
        def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
            return [OnlyWeighed]

    A method with parameters of its own derives its ``Parameters`` from `PreParameters`.
    """

    stage: ClassVar[Stage] = "pre"
    learners: ClassVar[tuple[str, ...]] = ("lightgbm", "xgboost", "logistic", "forest", "mlp", INSTALLED)
    Parameters = PreParameters  # type: ignore[assignment]

    @abstractmethod
    def prepare(self, table: Table, run: Run) -> Prepared:
        """Return the learner's training rows."""

    def fit(self, table: Table, run: Run, **_: object) -> FittedModel:
        """Prepare the rows, and train the learner on them."""
        prepared = self.prepare(table, run)
        model = fit_learner(
            self.learner(run), prepared.table, run, settings=self.parameters.settings, encoder=prepared.encoder
        )
        return dataclasses.replace(model, details=prepared.details, notes=prepared.notes)

    def baseline(self, table: Table, run: Run) -> FittedModel:
        """Train the learner on the rows as they are."""
        return fit_learner(self.learner(run), table, run, settings=self.parameters.settings)
