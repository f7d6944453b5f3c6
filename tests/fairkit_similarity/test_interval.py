"""What the papers prove of the two certificates, and intervals by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit_similarity.outside import FEWEST, spread
from fairkit_similarity.transport import Support


def population(n=1_000, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    labels = rng.integers(0, 2, n)
    score = 1 / (1 + np.exp(-2 * z[:, 0] - rng.normal(size=n)))
    return Support(z), -np.log(np.stack([1 - score, score])), labels


def coverage(draws, size, epsilon=0.1):
    support, values, labels = population()
    whole = support.losses(values, labels)
    truth = whole.solve(epsilon).value - whole.mass @ whole.own
    rng = np.random.default_rng(1)
    inside, below = 0, 0
    for _ in range(draws):
        rows = rng.integers(0, len(labels), size)
        found = spread(support.losses(values, labels, rows=rows, eta=1.0).solve(epsilon), rng)
        low, high = found.interval(0.95)
        inside += low <= truth <= high
        below += found.upper_bound(0.95) >= truth
    return inside / draws, below / draws


def test_intervals_cover_the_population():
    two_sided, one_sided = coverage(draws=100, size=250)
    # three standard errors of a share over 100 draws: .065; benchmarks/individual_coverage.py draws 500
    assert two_sided >= 0.95 - 0.065
    assert one_sided >= 0.95 - 0.065


def test_the_upper_bound_is_not_below_the_gap():
    support, values, labels = population(500)
    for seed in range(5):
        found = spread(support.losses(values, labels).solve(0.2), np.random.default_rng(seed))
        assert found.upper_bound(0.95) >= found.gap
        assert found.upper_bound(0.99) >= found.upper_bound(0.9)
        low, high = found.interval(0.95)
        assert low <= found.gap <= high


def test_the_error_is_that_of_the_mean():
    support, values, labels = population(500)
    solution = support.losses(values, labels).solve(0.2)
    found = spread(solution, np.random.default_rng(0))
    excess = solution.contributions() - solution.problem.own
    assert found.error == pytest.approx(excess.std(ddof=1) / np.sqrt(500), rel=1e-12)


def test_few_rows_have_no_interval():
    support, values, labels = population(500)
    rows = np.arange(FEWEST - 1)
    found = spread(support.losses(values, labels, rows=rows).solve(0.2), np.random.default_rng(0))
    assert found.interval(0.95) is None
    assert found.upper_bound(0.95) is None
    assert found.gap >= 0.0


@pytest.mark.parametrize("kind", ["losses", "outputs"])
def test_answers_near_a_solution_are_those_of_the_search(kind):
    """At the ends of the bracket, inside it, beyond it, and at 0."""
    support, values, labels = population(6_000)
    problem = support.losses(values, labels) if kind == "losses" else support.outputs(values[1])
    solution = problem.solve(0.1)
    queries = np.arange(0, len(problem.where), 3)
    seen = [eta for eta, _ in solution.bracket.seen if np.isfinite(eta)]
    for eta in (*seen, *(solution.eta * np.array([0.97, 0.999, 1.0, 1.001, 1.03, 2.0]))):
        near = problem.answers_near(solution.bracket, eta, queries)
        asked = problem.answers(eta, queries, solution.lines.answer[queries])
        np.testing.assert_allclose(near.at(eta), asked.at(eta), rtol=0, atol=1e-12)


def test_few_rows_are_asked_again_near_a_solution():
    support, values, labels = population(6_000)
    problem = support.losses(values, labels)
    solution = problem.solve(0.1)
    for eta in solution.eta * np.array([0.97, 1.03]):
        _, unsettled = solution.bracket.known(eta, np.arange(len(problem.where)))
        assert len(unsettled) < len(problem.where) / 4


# What the papers prove about the two certificates when the sample grows, on small cases.
def test_the_regulariser_generalises():
    """SenSeI, theorem 3.1: sup_h |R̂(h) - R(h)| ≤ 48 (J(D) + D_X D_Y / ε) / √n + D_Y √(log(2/t) / 2n).

    Over a finite space and class both sides can be computed: R by the masses, R̂ by a sample's counts, both with
    moves to every point; J(D) ≤ D_Y √(log |H|). The constants are large; that errors fall like 1/√n is tested, too.
    """
    rng, epsilon, t = np.random.default_rng(0), 0.1, 0.05
    z = rng.random((16, 2))
    mass = rng.dirichlet(np.ones(16))
    outputs = [np.tanh(z @ rng.normal(size=(2, 1)) * 2) for _ in range(4)]
    support = Support(z)
    problems = [h.reshape(16, 1) for h in outputs]

    def regulariser(h, weights):
        return support.outputs(h, h, kind="squared", weights=weights).solve(epsilon, tolerance=0).value

    true = [regulariser(h, mass) for h in problems]
    d_y = max(float(np.ptp(h)) ** 2 for h in outputs)
    d_x = float(((z[:, None] - z) ** 2).sum(axis=-1).max())
    worst = {}
    for n in (100, 1_600):
        found = []
        for _ in range(8):
            counts = rng.multinomial(n, mass).astype(float)
            found.append(max(abs(regulariser(h, counts) - r) for h, r in zip(problems, true, strict=True)))
        entropy = d_y * np.sqrt(np.log(len(outputs)))
        bound = 48 * (entropy + d_x * d_y / epsilon) / np.sqrt(n) + d_y * np.sqrt(np.log(2 / t) / (2 * n))
        assert max(found) <= bound
        worst[n] = np.mean(found)
    assert worst[100] / worst[1_600] > 4 * 0.6


def test_the_restricted_gap_comes_to_the_unrestricted_one():
    """BuDRO, theorem 3.4: sup_f |L(f) - L_r(f)| falls at least like n^(-1/(2d)) + n^(-1/2).

    People are uniform on [0, 1]^d, with d² the squared distance; a fine lattice stands for all of them.
    """
    epsilon, rng = 0.01, np.random.default_rng(0)

    def value(x):
        score = 2 * np.sin(4 * x).sum(axis=1)
        losses = np.stack([np.logaddexp(0, score), np.logaddexp(0, -score)])
        labels = (x[:, 0] > 0.5).astype(np.int64)
        return Support(x).losses(losses, labels).solve(epsilon, tolerance=1e-9).value

    for d, side in ((1, 1_500), (2, 40)):
        axis = (np.arange(side) + 0.5) / side
        all_people = np.stack([part.ravel() for part in np.meshgrid(*[axis] * d)], axis=1)
        unrestricted = value(all_people)
        errors = [np.mean([abs(value(rng.random((n, d))) - unrestricted) for _ in range(8)]) for n in (50, 800)]
        assert errors[1] / errors[0] < 1.25 * 16 ** (-1 / (2 * d))
