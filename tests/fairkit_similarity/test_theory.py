"""What the papers prove about the two certificates when the sample grows, on small cases."""

from __future__ import annotations

import numpy as np

from fairkit_similarity.transport import Support


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
