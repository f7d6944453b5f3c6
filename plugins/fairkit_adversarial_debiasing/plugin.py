"""The plugin `adversarial-debiasing`: parameters and checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fairkit.errors import ParameterError
from fairkit.mitigators import Capability, FittedModel, Mitigator, Run, Table
from fairkit.parameters.declare import parameter

if TYPE_CHECKING:
    from fairkit_onnx.model import OnnxModel


class AdversarialDebiasing(Mitigator):
    """Train a network from whose score an adversary cannot read the group.

    The network descends along the gradient of its loss, less the part of it that would help the adversary, less
    α times the adversary's gradient (Zhang et al., eq. 1). α grows while it trains, so that the network goes from the
    plain one to one without group differences; of the networks on this way the most accurate one whose disparity is
    within the tolerance is kept. The group is not read when the model decides.
    """

    name = "adversarial-debiasing"
    stage = "in"
    tasks = ("binary",)
    together: ClassVar[tuple[str, ...]] = ("tolerance",)
    citation = (
        "Zhang, Lemoine and Mitchell: Mitigating Unwanted Biases with Adversarial Learning, AIES 2018, arXiv:1801.07593"
    )
    capabilities = tuple(
        Capability(constraints=(name,), settings={"constraint": name}, dial="tolerance", trainings=20)
        for name in ("demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds")
    )

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """Parameters of adversarial debiasing."""

        constraint: Literal["demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds"] = (
            parameter(
                "demographic_parity",
                help="What must be equal between groups: selection rates (demographic_parity: the adversary sees the "
                "score of every row), true positive rates (equal_opportunity: of the favorable rows), false positive "
                "rates (predictive_equality: of the others), both (equalized_odds: score and label).",
            )
        )
        tolerance: float = parameter(
            0.05,
            help="The largest difference between two groups that the kept network may have on the training and "
            "validation rows.",
            minimum=0,
            maximum=1,
        )
        sensitive: tuple[str, ...] = parameter(
            (), help="The splits to protect, such as sex,race, with an adversary for each; default: all."
        )
        adversary_weight: float = parameter(
            5.0,
            help="What the adversary's gradient counts against the loss at the end of training; it grows up to this.",
            minimum=0,
        )
        projection: bool = parameter(True, help="Remove the part of the loss's gradient that would help the adversary.")
        warm_up: float = parameter(
            0.15, help="The share of the training in which the adversary learns without an effect.", minimum=0, below=1
        )
        adversary_hidden: tuple[int, ...] = parameter(
            (32,), help="Units of each hidden layer of the adversary; none: the paper's linear adversary.", minimum=1
        )
        adversary_rate: float = parameter(0.005, help="Step size of the adversary's optimiser (Adam).", above=0)
        hidden: tuple[int, ...] = parameter(
            (100,), help="Units of each hidden layer of the network; none: a linear model.", minimum=1
        )
        rate: float = parameter(
            0.001, help="Step size of the network's optimiser (Adam); it falls to a tenth of it.", above=0
        )
        epochs: int | None = parameter(None, help="Passes over the rows; default 30, more for small tables.", minimum=1)
        batch: int | None = parameter(
            None, help="Rows of a mini-batch; default 256, fewer for small tables.", minimum=2
        )
        balanced: bool = parameter(
            False, help="Let both outcomes count the same in total, so that the network aims at balanced accuracy."
        )
        min_group: int = parameter(
            30,
            help="The least rows of a group to protect: those that the rate is over, such as the favorable outcomes "
            "for equal_opportunity. Smaller groups are left out, and a note says so.",
            minimum=1,
        )
        validation_share: float = parameter(
            0.15,
            help="Share of the rows that measure the accuracy of the networks to choose from, where none are given.",
            above=0,
            below=1,
        )
        device: Literal["auto", "cpu", "cuda"] = parameter(
            "auto", help="Where to compute; auto: a GPU where there is one."
        )

    def check(self) -> None:
        """Refuse parameters that contradict each other."""
        chosen = self.parameters
        for name in ("adversary_weight", "adversary_rate", "rate"):
            if getattr(chosen, name) == float("inf"):
                raise ParameterError(f"{self.name}: {name} must be a finite number")
        if len(set(chosen.sensitive)) < len(chosen.sensitive):
            raise ParameterError(f"{self.name}: sensitive names a split twice")

    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> FittedModel:
        """Train; see `Mitigator.fit`."""
        return self.fit_together([self], table, run, validation=validation)[0]

    @classmethod
    def fit_together(
        cls,
        methods: Sequence[Any],
        table: Table,
        run: Run,
        *,
        validation: Table | None = None,
        model: OnnxModel | None = None,
    ) -> Sequence[FittedModel]:
        """Train once, and choose a network for every tolerance; see `TrainsTogether`."""
        from fairkit_adversarial_debiasing.fitting import Fitting

        methods[0].learner(run)
        fitting = Fitting.prepare(table, run, methods[0].parameters, validation=validation)
        way = fitting.train()
        return [fitting.choose(way, method.parameters.tolerance) for method in methods]

    def baseline(self, table: Table, run: Run) -> FittedModel:
        """Train the same network without an adversary."""
        from fairkit_adversarial_debiasing.fitting import Fitting

        fitting = Fitting.prepare(table, run, self.parameters, adversary=False)
        return fitting.choose(fitting.train(), 1.0)
