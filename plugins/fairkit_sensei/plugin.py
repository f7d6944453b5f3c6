"""The plugin `sensei`: parameters and checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from fairkit.errors import ParameterError
from fairkit.mitigators import Capability, FittedModel, Mitigator, Run, Table
from fairkit.parameters import parameter
from fairkit.support.lazy_dataclass import dataclass
from fairkit_similarity.metric import directions_parameter, strength_parameter
from fairkit_similarity.training import refuse_directions

if TYPE_CHECKING:
    from fairkit_onnx.file import OnnxModel
    from fairkit_similarity.metric import FairMetric


class SenSeI(Mitigator):
    """Train a network that treats alike those whom a fair metric holds alike.

    The loss gets a regulariser: ρ times the largest mean squared difference of outputs between a row and a
    row at a mean squared fair distance of at most ε (``method=sensei``). Beside it: adversarial training under the
    metric (``sensr``), the same penalty on named counterfactuals (``clp``), and the plain network (``erm``).
    Batches hold every class equally often, so the network aims at balanced accuracy.
    """

    name = "sensei"
    stage = "in"
    tasks = ("binary", "multiclass", "regression")
    capabilities = (Capability(constraints=("consistency", "dif", "performance_gap"), trainings=50),)
    citation = (
        "Yurochkin and Sun, SenSeI: Sensitive Set Invariance for Enforcing Individual Fairness, ICLR 2021, "
        "arXiv:2006.14168; Yurochkin, Bower and Sun (SenSR), ICLR 2020, arXiv:1907.00020; Garg et al. (CLP), "
        "AIES 2019, arXiv:1809.10610"
    )

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """Parameters of invariant networks."""

        method: Literal["sensei", "sensr", "clp", "erm"] = parameter(
            "sensei",
            help="sensei: invariance; sensr: adversarial training; clp: counterfactual logit pairing; erm: plain.",
        )
        rho: float | None = parameter(
            None,
            help="What the regulariser counts against the loss; default: 5 from 20,000 rows on, less for fewer (0.4 of "
            "6,000, at least 0.3).",
            minimum=0,
        )
        epsilon: float = parameter(
            0.1,
            help="How far rows may be moved, mean squared fair distance; 0: in sensitive directions only.",
            minimum=0,
        )
        fair_metric: str = parameter(
            "subspace",
            help="subspace, face or explore (from sensitive), or the file of a saved fair metric.",
            former={"metric": 1},
        )
        strength: float = strength_parameter(1e-6)
        directions: tuple[str, ...] | None = directions_parameter()
        rank: int = parameter(1, help="How many directions to ignore (face).", minimum=1)
        standardise: bool = parameter(
            True, help="Standardise numbers before FACE; false for columns of one scale, such as an embedding's."
        )
        counterfactuals: str | None = parameter(
            None,
            help="CSV or Parquet file with versions of rows for FACE and clp, in place of sensitive; two or more "
            "versions of each, the rows themselves among them.",
        )
        of: str = parameter("of", help="The column of that file that names what each row is a version of.")
        sensitive: tuple[str, ...] = parameter(
            (),
            help="Columns whose other values make counterfactuals (clp, face, explore), as in sex+race.",
            former={"flip": 1},
        )
        values: Mapping[str, Any] = parameter(
            {}, help="The values of a flipped column, as values.relationship=Husband,Wife; default: all."
        )
        hidden: tuple[int, ...] = parameter(
            (100,), help="Units of each hidden layer, as in 100,100; none: a linear model.", minimum=1
        )
        epochs: int | None = parameter(
            None, help="The most passes over the rows; default 10, more for small tables.", minimum=1
        )
        batch: int | None = parameter(
            None,
            help="Rows of a mini-batch, every class equally often; default 256, fewer for small tables.",
            minimum=1,
        )
        rate: float = parameter(0.002, help="Step size of the network's optimiser (AdamW).", above=0)
        weight_decay: float = parameter(0.0, help="Weight decay of the optimiser.", minimum=0)
        free_steps: int = parameter(3, help="Search steps in the sensitive directions, besides setting out.", minimum=0)
        steps: int = parameter(5, help="Search steps in all directions.", minimum=0)
        multiplier: float | None = parameter(None, help="Where λ starts; default 1/rho (sensr: 1).", minimum=0)
        multiplier_rate: float | None = parameter(
            None, help="η in λ ← max(0, λ - η rho (epsilon - mean d²)); default 0.05/rho².", above=0
        )
        patience: int | None = parameter(
            None,
            help="Stop after so many epochs without a better validation objective; default 5, more for small tables.",
            minimum=1,
        )
        device: Literal["auto", "cpu", "cuda"] = parameter(
            "auto", help="Where to compute; auto: a GPU where there is one."
        )

    def __init__(self, parameters: Any = None, *, module: Any = None, metric: FairMetric | None = None) -> None:
        self.module = module
        """A torch module in place of a fully connected network; it is copied, and trained from its weights."""
        self.metric = metric
        """A fair metric in place of a learned one."""
        super().__init__(parameters)

    def check(self) -> None:
        """Refuse parameters that contradict each other."""
        chosen = self.parameters
        for name in ("epsilon", "multiplier", "rho"):
            if getattr(chosen, name) == float("inf"):
                raise ParameterError(f"sensei: {name} must be a finite number")
        refuse_directions("sensei", chosen.fair_metric, chosen.directions)
        self._check_face()
        needs = chosen.method == "clp" or chosen.fair_metric in ("face", "explore")
        needs = needs and chosen.counterfactuals is None
        if needs and not chosen.sensitive and self.metric is None and chosen.method != "erm":
            what = "method=clp" if chosen.method == "clp" else f"fair_metric={chosen.fair_metric}"
            raise ParameterError(
                f"sensei: {what} needs counterfactuals: name the columns to flip, as in the "
                "parameter `sensitive=sex,race`, or a file of other versions of the rows, as in the parameter "
                "`counterfactuals=versions.parquet`"
            )

    def _check_face(self) -> None:
        """Refuse what only FACE heeds where it is not learned."""
        chosen = self.parameters
        learned = chosen.fair_metric == "face" and chosen.method in ("sensei", "sensr") and self.metric is None
        what = "learning fair_metric=face (method=sensei or sensr)"
        if not chosen.standardise and not learned:
            raise ParameterError(f"sensei: standardise is for {what}; leave it out otherwise")
        if chosen.counterfactuals is not None and not learned and chosen.method != "clp":
            raise ParameterError(f"sensei: counterfactuals is for {what} and for method=clp; leave it out otherwise")
        if chosen.counterfactuals is not None and chosen.sensitive:
            raise ParameterError("sensei: give counterfactual rows as a file or by sensitive, not both")
        if chosen.of != "of" and chosen.counterfactuals is None:
            raise ParameterError("sensei: of names a column of the file counterfactuals; give that, too")

    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> FittedModel:
        """Train; see `Mitigator.fit`."""
        from fairkit_sensei.fitting import Fitting

        return Fitting.prepare(
            table, run, self.parameters, module=self.module, metric=self.metric, validation=validation
        ).fit()

    def baseline(self, table: Table, run: Run) -> FittedModel:
        """Train the same network without the regulariser."""
        import dataclasses

        plain = dataclasses.replace(
            self.parameters, method="erm", counterfactuals=None, of="of", standardise=True, fair_metric="subspace"
        )
        return type(self)(plain, module=self.module).fit(table, run)
