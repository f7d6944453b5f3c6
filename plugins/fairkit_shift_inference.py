"""Prior correction by group: each group's scores are moved to a common base rate, then decided at 1/2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fairkit
from fairkit.errors import DataError
from fairkit.mitigators import Capability
from fairkit.parameters import parameter
from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.write.rules import Piece
from fairkit_repair.postprocess import PostParameters, PostProcessor, Solution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Run
    from fairkit_repair.scored_rows import ScoredRows


def odds_factors(priors: NDArray[np.float64], target: float) -> NDArray[np.float64]:
    """Return the factors on the odds that move scores from the priors π_k to the prior π.

    By Bayes' rule (Saerens et al., eq. 2.4 for two classes) the corrected score p' has
    p'/(1 - p') = p/(1 - p) · [π/(1 - π)] / [π_k/(1 - π_k)].
    """
    factors: NDArray[np.float64] = target / (1.0 - target) * (1.0 - priors) / priors
    return factors


class ShiftInference(PostProcessor):
    """Correct each group's scores for its base rate, as if all groups had the same one.

    A baseline: it moves rates towards each other and holds nothing; the rates after it are in the details.
    """

    name = "shift-inference"
    citation = "Saerens et al., Neural Computation 14(1), 2002, doi:10.1162/089976602753284446"
    capabilities = (Capability(constraints=("demographic_parity",), reads_group=True, trainings=0),)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters(PostParameters):
        """See `ShiftInference`."""

        prior: float | None = parameter(
            None,
            help="The base rate that every group's scores are moved to; default: that of all rows.",
            above=0,
            below=1,
        )

    def solve(self, rows: ScoredRows, validation: ScoredRows | None, run: Run) -> Solution:
        """Measure the groups' base rates and correct for them."""
        priors = rows.rates(rows.favorable)
        for name, prior in zip(rows.names, priors, strict=True):
            if not 0.0 < prior < 1.0:
                raise DataError(
                    f"all rows of group {name!r} have the same outcome, so that its scores cannot be moved "
                    "to another base rate; merge groups or add rows"
                )
        overall = float(np.average(rows.favorable, weights=rows.weights))
        target = overall if self.parameters.prior is None else self.parameters.prior
        odds = odds_factors(np.append(priors, overall), target)
        scaled = odds[rows.codes] * rows.scores
        chance = (scaled / (scaled + 1.0 - rows.scores) >= 0.5).astype(np.float64)
        rates = rows.rates(chance)
        return Solution(
            pieces=tuple((Piece(0.5),) for _ in odds),
            odds=tuple(float(factor) for factor in odds),
            details={
                "prior": target,
                "priors": {name: float(prior) for name, prior in zip(rows.names, priors, strict=True)},
                "rates": {name: float(value) for name, value in zip(rows.names, rates, strict=True)},
                "difference_on_fit_rows": float(np.ptp(rates)),
            },
        )


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [ShiftInference]
