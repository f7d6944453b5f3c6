"""A synthetic data set of rankings: applicants for job openings, scored with a bias whose size is known.

Each opening (`query`) has 4 to 24 applicants. An applicant has a sex, and three independent standard normal draws:
merit m, and the noise of a test and of a recommendation. Both are m plus noise of size 1/2, and the recommendation of a
woman is `penalty` lower. Relevance grades m at 0, 1 and 2; the recruiter's score is the mean of test and
recommendation. Without the penalty sexes are alike in everything, so that every disparity of exposure is the penalty's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

HIRING_ROLES: dict[str, Any] = {
    "label": "relevance",
    "sensitive": ["sex"],
    "query": "opening",
    "features": ["test", "recommendation"],
}
"""The usual roles of the columns."""

_FEWEST, _MOST = 4, 24
_NOISE = 0.5
_WOMEN = 0.4


def hiring_table(openings: int = 500, seed: int = 0, *, penalty: float = 1.0) -> pa.Table:
    """Return one row for each applicant, in random order."""
    import pyarrow as pa

    if openings < 1:
        raise ParameterError(f"openings={openings}; there must be at least one")
    rng = np.random.default_rng(seed)
    opening = np.repeat(np.arange(openings), rng.integers(_FEWEST, _MOST + 1, openings))
    opening = opening[rng.permutation(len(opening))]
    woman = rng.random(len(opening)) < _WOMEN
    merit = rng.normal(size=len(opening))
    test, recommendation = (merit + _NOISE * rng.normal(size=len(opening)) for _ in range(2))
    recommendation -= penalty * woman
    return pa.table(
        {
            "opening": opening,
            "sex": np.where(woman, "female", "male"),
            "test": test.round(4),
            "recommendation": recommendation.round(4),
            "score": ((test + recommendation) / 2).round(4),
            "relevance": np.digitize(merit, [0.0, 1.0, 2.0]),
        }
    )
