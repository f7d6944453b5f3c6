"""A synthetic loan data set: people, the bank's past decisions, and a bias whose size is known exactly.

Every applicant has a sex, an ethnicity, a region, an employment and an age (the cell c, drawn from fixed
tables; the region depends on the ethnicity), and three independent standard normal draws z. Income, debt ratio
and amount are functions of c and z. With the index

    I = m(c) + b·z,

the applicant would repay when I + ε ≥ 0, and the bank approved when I - p(c) + τ η ≥ 0, with independent
standard normal ε, η. The penalty p(c) is the bank's bias: it depends on sex, ethnicity and region and has
nothing to do with repayment. In a cell the two latent variables are bivariate normal, so that the
probability of approval is Φ((m - p) / sqrt(|b|² + τ²)), and that of approval and repayment together is an
orthant of the bivariate normal; `loans_truth` sums over all cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ParameterError
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


SEXES = ("female", "male")
ETHNICITIES = ("A", "B", "C")
REGIONS = ("city", "north", "south")
EMPLOYMENTS = ("permanent", "self-employed", "temporary")
AGES = np.arange(21, 71)

_SEX_SHARE = np.array([0.46, 0.54])
_ETHNICITY_SHARE = np.array([0.60, 0.26, 0.14])
_REGION_SHARE = np.array([[0.40, 0.42, 0.18], [0.45, 0.20, 0.35], [0.30, 0.15, 0.55]])
_EMPLOYMENT_SHARE = np.array([0.68, 0.12, 0.20])

_LOG_INCOME = 10.35
_SEX_INCOME = np.array([-0.12, 0.08])
_ETHNICITY_INCOME = np.array([0.05, -0.06, -0.12])
_INCOME_SPREAD = 0.40
_LOGIT_DEBT = -0.6
_EMPLOYMENT_DEBT = np.array([0.0, 0.2, 0.3])
_DEBT_SPREAD = 0.70
_LOG_AMOUNT = 9.2
_AMOUNT_SPREAD = 0.50

_INCOME_WEIGHT, _DEBT_WEIGHT, _AMOUNT_WEIGHT, _AGE_WEIGHT = 1.6, -0.8, -0.5, 0.008
_EMPLOYMENT_INDEX = np.array([0.25, 0.0, -0.35])
_BASE = 0.40

_SEX_PENALTY = np.array([0.25, 0.0])
_ETHNICITY_PENALTY = np.array([0.0, 0.20, 0.40])
_REGION_PENALTY = np.array([0.0, 0.0, 0.25])
_BANK_NOISE = 0.5

_SPREAD = math.hypot(_INCOME_WEIGHT * _INCOME_SPREAD, _DEBT_WEIGHT * _DEBT_SPREAD, _AMOUNT_WEIGHT * _AMOUNT_SPREAD)


def loans_table(rows: int = 10_000, seed: int = 0) -> pa.Table:
    """Draw applicants."""
    if rows < 1:
        raise ParameterError(f"rows={rows}: a data set has at least one row")
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    sex = _draw(rng, np.broadcast_to(_SEX_SHARE, (1, 2)), np.zeros(rows, np.int64))
    ethnicity = _draw(rng, np.broadcast_to(_ETHNICITY_SHARE, (1, 3)), np.zeros(rows, np.int64))
    region = _draw(rng, _REGION_SHARE, ethnicity)
    employment = _draw(rng, np.broadcast_to(_EMPLOYMENT_SHARE, (1, 3)), np.zeros(rows, np.int64))
    age = rng.integers(AGES[0], AGES[-1] + 1, rows)
    income, debt, amount, repay, bank = rng.standard_normal((5, rows))
    log_income = _LOG_INCOME + _SEX_INCOME[sex] + _ETHNICITY_INCOME[ethnicity] + _INCOME_SPREAD * income
    logit_debt = _LOGIT_DEBT + _EMPLOYMENT_DEBT[employment] + _DEBT_SPREAD * debt
    index = (
        _mean_index(sex, ethnicity, employment, age)
        + _INCOME_WEIGHT * _INCOME_SPREAD * income
        + _DEBT_WEIGHT * _DEBT_SPREAD * debt
        + _AMOUNT_WEIGHT * _AMOUNT_SPREAD * amount
    )
    penalty = _penalty(sex, ethnicity, region)
    return pa.table(
        {
            "sex": _named(SEXES, sex),
            "ethnicity": _named(ETHNICITIES, ethnicity),
            "age": age,
            "region": _named(REGIONS, region),
            "employment": _named(EMPLOYMENTS, employment),
            "income": np.rint(np.exp(log_income)).astype(np.int64),
            "debt_ratio": np.round(0.5 * (1 + np.tanh(0.5 * logit_debt)), 4),
            "amount": np.rint(np.exp(_LOG_AMOUNT + _AMOUNT_SPREAD * amount)).astype(np.int64),
            "would_repay": _named(("no", "yes"), (index + repay >= 0).astype(np.int64)),
            "decision": _named(("denied", "approved"), (index - penalty + _BANK_NOISE * bank >= 0).astype(np.int64)),
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoansTruth:
    """What is true of the process that draws the loan data, not of a sample."""

    approved: Mapping[str, Mapping[str, float]]  # for `sex` and `ethnicity`, each group's probability of approval
    approved_given_repay: Mapping[str, Mapping[str, float]]
    approved_given_default: Mapping[str, Mapping[str, float]]
    repay: Mapping[str, Mapping[str, float]]  # each group's probability of repayment

    def demographic_parity_difference(self, sensitive: str) -> float:
        """The largest difference of the groups' probabilities of approval, in [0, 1]; 0 is parity."""
        return _spread(self.approved[sensitive])

    def demographic_parity_ratio(self, sensitive: str) -> float:
        """The smallest ratio of the groups' probabilities of approval, in [0, 1]; 1 is parity."""
        rates = self.approved[sensitive].values()
        return min(rates) / max(rates)

    def equal_opportunity_difference(self, sensitive: str) -> float:
        """The largest difference of the probabilities of approval among those who would repay."""
        return _spread(self.approved_given_repay[sensitive])

    def equalized_odds_difference(self, sensitive: str) -> float:
        """The larger of the differences among those who would repay, and among those who would not."""
        return max(_spread(self.approved_given_repay[sensitive]), _spread(self.approved_given_default[sensitive]))


def loans_truth() -> LoansTruth:
    """Sum over the cells what the module's derivation gives for each; exact to about 1e-12."""
    cells = np.array(list(itertools.product(range(2), range(3), range(3), range(3), range(len(AGES)))))
    sex, ethnicity, region, employment, age = cells.T
    mass = (
        _SEX_SHARE[sex]
        * _ETHNICITY_SHARE[ethnicity]
        * _REGION_SHARE[ethnicity, region]
        * _EMPLOYMENT_SHARE[employment]
        / len(AGES)
    )
    mean = _mean_index(sex, ethnicity, employment, AGES[age])
    repay_sd, bank_sd = math.hypot(_SPREAD, 1), math.hypot(_SPREAD, _BANK_NOISE)
    repays = mean / repay_sd
    approves = (mean - _penalty(sex, ethnicity, region)) / bank_sd
    both = bivariate_normal(repays, approves, _SPREAD**2 / (repay_sd * bank_sd))
    repay, approved = _normal_cdf(repays), _normal_cdf(approves)

    def by_group(values: Array, given: Array) -> dict[str, dict[str, float]]:
        splits = {"sex": (sex, SEXES), "ethnicity": (ethnicity, ETHNICITIES)}
        return {
            split: {
                name: float((mass * values)[codes == i].sum() / (mass * given)[codes == i].sum())
                for i, name in enumerate(names)
            }
            for split, (codes, names) in splits.items()
        }

    everybody = np.ones_like(mass)
    return LoansTruth(
        approved=by_group(approved, everybody),
        approved_given_repay=by_group(both, repay),
        approved_given_default=by_group(approved - both, 1 - repay),
        repay=by_group(repay, everybody),
    )


def bivariate_normal(h: Array, k: Array, correlation: float) -> Array:
    """Return P(X ≤ h, Y ≤ k) for standard normal X, Y with a correlation in (-1, 1).

    Plackett (1954): the derivative in the correlation r is the density φ₂(h, k; r), so that the probability is
    Φ(h) Φ(k) + ∫₀^correlation φ₂(h, k; r) dr, here by Gauss-Legendre in arcsin r.
    """
    nodes, weights = np.polynomial.legendre.leggauss(48)
    top = math.asin(correlation)
    angle = (nodes + 1) * top / 2
    sine, cosine = np.sin(angle), np.cos(angle)
    quadratic = (h[:, None] ** 2 - 2 * h[:, None] * k[:, None] * sine + k[:, None] ** 2) / (2 * cosine**2)
    integral = (np.exp(-quadratic) * weights).sum(axis=1) * top / 2
    return np.asarray(_normal_cdf(h) * _normal_cdf(k) + integral / (2 * math.pi))


def _normal_cdf(x: Array) -> Array:
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x.tolist()])


def _mean_index(
    sex: NDArray[np.int64], ethnicity: NDArray[np.int64], employment: NDArray[np.int64], age: NDArray[np.int64]
) -> Array:
    income = _SEX_INCOME[sex] + _ETHNICITY_INCOME[ethnicity]
    debt = _EMPLOYMENT_DEBT[employment]
    return np.asarray(
        _BASE + _INCOME_WEIGHT * income + _DEBT_WEIGHT * debt + _EMPLOYMENT_INDEX[employment] + _AGE_WEIGHT * (age - 45)
    )


def _penalty(sex: NDArray[np.int64], ethnicity: NDArray[np.int64], region: NDArray[np.int64]) -> Array:
    return np.asarray(_SEX_PENALTY[sex] + _ETHNICITY_PENALTY[ethnicity] + _REGION_PENALTY[region])


def _draw(rng: np.random.Generator, shares: Array, given: NDArray[np.int64]) -> NDArray[np.int64]:
    """Draw a category for each row from the row `given` of a table of probabilities."""
    steps = np.cumsum(shares, axis=1)[:, :-1]
    return np.asarray((rng.random(len(given))[:, None] >= steps[given]).sum(axis=1))


def _named(names: tuple[str, ...], codes: NDArray[np.int64]) -> Any:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names)).dictionary_decode()


def _spread(rates: Mapping[str, float]) -> float:
    return max(rates.values()) - min(rates.values())


# A synthetic data set of rankings: applicants for job openings, scored with a bias whose size is known.


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


# Graduate admissions at Berkeley in the autumn of 1973: 4,526 applications to the six largest departments.


COUNTS = {
    "A": {"male": (512, 313), "female": (89, 19)},
    "B": {"male": (353, 207), "female": (17, 8)},
    "C": {"male": (120, 205), "female": (202, 391)},
    "D": {"male": (138, 279), "female": (131, 244)},
    "E": {"male": (53, 138), "female": (94, 299)},
    "F": {"male": (22, 351), "female": (24, 317)},
}
"""Admitted and rejected applications, by department and sex."""


def admissions_table() -> pa.Table:
    """Return one row for each application: ``sex``, ``department``, and ``admitted``, which is 1 or 0."""
    import pyarrow as pa

    cells = [
        (sex, department, admitted, rows)
        for department, sexes in COUNTS.items()
        for sex, (yes, no) in sexes.items()
        for admitted, rows in ((1, yes), (0, no))
    ]
    return pa.table(
        {
            "sex": [sex for sex, _, _, rows in cells for _ in range(rows)],
            "department": [department for _, department, _, rows in cells for _ in range(rows)],
            "admitted": [admitted for _, _, admitted, rows in cells for _ in range(rows)],
        }
    )
