"""Reject option: inside a band around 1/2 the groups with the lower rate are accepted, the others refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import fairkit
from fairkit.mitigators import Capability
from fairkit.parameters import parameter
from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.write.rules import Piece
from fairkit_repair.postprocess import PostParameters, PostProcessor, Solution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.mitigators import Run
    from fairkit_repair.scored_rows import ScoredRows

GRID = tuple(round(0.01 * step, 2) for step in range(1, 101))
"""The half widths of the band that are tried, on the scale of f = 2p - 1."""


def band_decisions(scores: NDArray[np.float64], deprived: NDArray[np.bool_], theta: float) -> NDArray[np.float64]:
    """Decide by a band: with |2p - 1| ≤ θ by the group, else by the score."""
    upper, lower = _thresholds(theta)
    accepted: NDArray[np.float64] = (scores >= np.where(deprived, upper, lower)).astype(np.float64)
    return accepted


def _thresholds(theta: float) -> tuple[float, float]:
    """From which p on rows are accepted: in deprived groups, and (just above the band) in the others."""
    return 0.5 - 0.5 * theta, float(np.nextafter(0.5 + 0.5 * theta, 2.0))


class RejectOption(PostProcessor):
    """Decide inside a band around 1/2 in favor of the groups whose rate is low.

    The band's half width θ is the one of the highest accuracy among those whose difference between groups is
    within `tolerance` and chance; where none is (scores of few values jump over parity), the one of the
    smallest difference, and the model's notes say that parity was not reached.
    """

    name = "reject-option"
    citation = "Kamiran, Karim and Zhang, Decision theory for discrimination-aware classification, ICDM 2012"
    capabilities = (Capability(constraints=("demographic_parity",), dial="tolerance", reads_group=True, trainings=0),)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters(PostParameters):
        """See `RejectOption`."""

        theta: float | None = parameter(
            None, help="Half width of the band in 2p - 1; default: chosen from .01, .02, ..., 1.", minimum=0, maximum=1
        )
        tolerance: float = parameter(
            0.0, help="The difference between groups that is allowed beside chance.", minimum=0
        )

    def promises(self) -> Sequence[fairkit.Rule]:
        """Bound the difference of selection rates by the tolerance."""
        return (fairkit.Rule(metric="demographic_parity_difference", max=self.parameters.tolerance),)

    def solve(self, rows: ScoredRows, validation: ScoredRows | None, run: Run) -> Solution:
        """Choose the band on the validation rows, or on the fit rows where there are none."""
        judged = rows if validation is None else validation
        rates = rows.rates((rows.scores >= 0.5).astype(np.float64))
        overall = float(np.average(rows.scores >= 0.5, weights=rows.weights))
        deprived = np.append(rates < overall, False)
        grid = GRID if self.parameters.theta is None else (self.parameters.theta,)
        judgements = [self._judge(judged, deprived, theta) for theta in grid]
        allowed = self.parameters.tolerance + judged.margin()
        good = [index for index, (difference, _) in enumerate(judgements) if difference <= allowed]
        best = (
            max(good, key=lambda index: judgements[index][1])
            if good
            else min(range(len(grid)), key=lambda index: judgements[index][0])
        )
        upper, lower = _thresholds(grid[best])
        difference = judgements[best][0]
        return Solution(
            pieces=(*((Piece(upper if low else lower),) for low in deprived[:-1]), (Piece(0.5),)),
            details={
                "theta": grid[best],
                "favored_inside_the_band": [n for n, low in zip(rows.names, deprived, strict=False) if low],
                "difference": difference,
                "allowed": allowed,
                "reached": bool(good),
            },
            notes=() if good else (_failure(judged, difference, allowed),),
        )

    @staticmethod
    def _judge(rows: ScoredRows, deprived: NDArray[np.bool_], theta: float) -> tuple[float, float]:
        chance = band_decisions(rows.scores, deprived[rows.codes], theta)
        rates = rows.rates(chance)
        return float(np.nanmax(rates) - np.nanmin(rates)), rows.accuracy(chance)


def _failure(rows: ScoredRows, difference: float, allowed: float) -> str:
    distinct = len(np.unique(rows.scores))
    cause = f" The scores take {distinct} values only." if distinct <= len(GRID) else ""
    return (
        f"No band reaches parity: the smallest difference between groups is {difference:.3g}, "
        f"above {allowed:.3g}.{cause} A randomized rule (rto, threshold-optimizer) does."
    )


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [RejectOption]
