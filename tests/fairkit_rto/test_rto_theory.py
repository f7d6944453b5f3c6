"""What the paper proves about the rule, on small cases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fairkit_rto.constraints import parity_threshold, ramp, sort_groups


def objective(margins, codes, upper, lower, *, gamma, rho, epsilon):
    """F(μ, λ) of equation 4: the mean of ε/2 (λ + μ) + ρ (λ - μ) + ξ_γ(f - (λ - μ))."""
    moved = margins - (upper - lower)[codes]
    bent = np.where(moved <= 0, 0.0, np.where(moved >= gamma, moved - gamma / 2, moved**2 / (2 * gamma)))
    return float((epsilon / 2 * (upper + lower)[codes] + rho * (upper - lower)[codes] + bent).mean())


def descended(margins, codes, *, gamma, rho, epsilon, rate, steps, rng):
    """Algorithm 1 with a fixed rate, and the means of its iterates."""
    now, total = np.zeros((2, 2)), np.zeros((2, 2))
    for row in rng.integers(0, len(margins), steps):
        group = codes[row]
        h = min(max((margins[row] - (now[0, group] - now[1, group])) / gamma, 0.0), 1.0)
        now[0, group] = max(0.0, now[0, group] - rate * (epsilon / 2 + rho - h))
        now[1, group] = max(0.0, now[1, group] - rate * (epsilon / 2 - rho + h))
        total += now
    return total / steps


@pytest.mark.parametrize(("gamma", "epsilon"), [(0.1, 0.0), (0.5, 0.1)])
def test_proposition_1_the_averaged_iterate(gamma, epsilon):
    """E[F(averaged)] - F* ≤ (1 + ρ + ε)² α / 2 + (‖μ*‖² + ‖λ*‖²) / (2 T α); F* is at the exact thresholds."""
    rng, rho = np.random.default_rng(0), 0.3
    codes = rng.integers(0, 2, 1_000)
    margins = np.clip(rng.normal(0.4 * codes - 0.5, 0.4), -1, 1)
    exact = np.array([parity_threshold([g], gamma, rho, epsilon) for g in sort_groups(margins, codes, 2)])
    upper, lower = np.maximum(exact, 0), np.maximum(-exact, 0)
    settings = {"gamma": gamma, "rho": rho, "epsilon": epsilon}
    least = objective(margins, codes, upper, lower, **settings)
    steps = 2_000
    rate = 0.1 * np.sqrt(2 / steps)
    found = [
        objective(margins, codes, *descended(margins, codes, rate=rate, steps=steps, rng=rng, **settings), **settings)
        for _ in range(5)
    ]
    assert min(found) >= least - 1e-12  # the exact thresholds are the optimum of the paper's objective
    bound = (1 + rho + epsilon) ** 2 * rate / 2 + (exact**2).sum() / (2 * steps * rate)
    assert np.mean(found) - least <= bound


def population(seed):
    """Points with masses and Bayes chances η in two groups, all known."""
    rng = np.random.default_rng(seed)
    mass, eta = rng.random((2, 40)), rng.random((2, 40)) ** np.array([[1.0], [2.0]])
    return mass / mass.sum(), eta


def error(mass, eta, h):
    return float((mass * (h * (1 - eta) + (1 - h) * eta)).sum())


def best_error(mass, eta, epsilon):
    """The least error of a randomized rule whose rates differ by at most ε: a linear program."""
    from scipy.optimize import linprog

    share = mass / mass.sum(axis=1, keepdims=True)
    rates = np.concatenate([share[0], -share[1]])
    found = linprog(
        (mass * (1 - 2 * eta)).ravel(),
        A_ub=np.stack([rates, -rates]),
        b_ub=[epsilon, epsilon],
        bounds=(0, 1),
        method="highs",
    )
    return found.fun + float((mass * eta).sum())


def learned_error(mass, eta, margins, points, *, gamma, epsilon):
    """The population error of the rules of a sample (margins by group), with the best ρ."""
    found = []
    for rho in np.linspace(0.05, 0.95, 37):
        thresholds = [
            parity_threshold(sort_groups(part, np.zeros(len(part), dtype=int), 1), gamma, rho, epsilon)
            for part in margins
        ]
        h = np.stack([ramp(points[k], thresholds[k], gamma) for k in (0, 1)])
        found.append(error(mass, eta, h))
    return min(found)


@pytest.mark.parametrize("gamma", [0.02, 0.2])
def test_theorem_2_without_sampling_error(gamma):
    """E[ĥ ≠ y] ≤ E[h* ≠ y] + E|2η - 1 - f| + 2γ for some ρ, where the sample is the population (N → ∞)."""
    rng = np.random.default_rng(1)
    for seed in range(3):
        mass, eta = population(seed)
        counts = np.round(mass * 20_000).astype(int)
        mass = counts / counts.sum()
        for noise in (0.0, 0.2):
            points = np.clip(2 * eta - 1 + noise * rng.normal(size=eta.shape), -1, 1)
            rows = [np.repeat(points[k], counts[k]) for k in (0, 1)]
            got = learned_error(mass, eta, rows, points, gamma=gamma, epsilon=0.05)
            away = float((mass * np.abs(2 * eta - 1 - points)).sum())
            assert got <= best_error(mass, eta, 0.05) + away + 2 * gamma + 1e-3  # ρ is from a grid


def test_theorem_2_a_consistent_score_gives_a_consistent_rule():
    """With f = 2η - 1, N → ∞, γ → 0 and γ N^(1/3) → ∞ the error comes to the best one under the constraint."""
    mass, eta = population(5)
    rng, excess = np.random.default_rng(2), []
    for count in (300, 3_000, 30_000):
        picked = rng.choice(mass.size, count, p=mass.ravel())
        rows = [(2 * eta - 1).ravel()[picked[picked // 40 == k]] for k in (0, 1)]
        got = learned_error(mass, eta, rows, 2 * eta - 1, gamma=0.5 * count**-0.25, epsilon=0.05)
        excess.append(got - best_error(mass, eta, 0.05))
    assert excess[0] > excess[-1]
    assert abs(excess[-1]) < 0.01


def test_proposition_2_no_rule_is_unbiased_in_all_groups():
    """sup over π of E_π |C(f, γ | π)| ≥ ½ E|γ - E γ| min(E f, 1 - E f), over every way π to cut the space in two."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        mass = rng.dirichlet(np.ones(7))
        chance, f = rng.random(7), (rng.random(7) < 0.5).astype(float)

        def covariance(of, mass=mass, chance=chance, f=f):
            own = mass[of]
            if own.sum() == 0:
                return 0.0
            own = own / own.sum()
            return own @ (chance[of] * f[of]) - (own @ chance[of]) * (own @ f[of])

        worst = 0.0
        for cut in itertools.product([False, True], repeat=7):
            one = np.array(cut)
            worst = max(worst, sum(mass[part].sum() * abs(covariance(part)) for part in (one, ~one)))
        rate = mass @ f
        bound = 0.5 * (mass @ np.abs(chance - mass @ chance)) * min(rate, 1 - rate)
        assert worst >= bound - 1e-12
        if bound > 0:
            assert worst > 0
