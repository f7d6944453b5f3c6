"""The search uphill, and how it starts."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from tests.optional import LazyModule

from fairkit.errors import DataError, ModelError
from fairkit_similarity.ascent import Disparity, Frame, Origin, output_directions, worst_case
from fairkit_similarity.metric import Geometry
from fairkit_similarity.networks import DenseNetwork, Image, ModuleNetwork, check_module, dense_layers
from fairkit_similarity.outside import best_plan, search_outside

torch = LazyModule("torch")


def network(activation, widths=(5, 7, 6, 3), seed=0):
    torch.manual_seed(seed)
    layers = []
    for before, after in itertools.pairwise(widths):
        layers += [torch.nn.Linear(before, after), getattr(torch.nn, activation)()]
    return torch.nn.Sequential(*layers[:-1]).double()


def as_network(module):
    layers = dense_layers(module)
    return ModuleNetwork(module) if layers is None else DenseNetwork(layers)


def people(n=200, d=5, seed=1):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("activation", ["ReLU", "Tanh", "Sigmoid"])
def test_hand_written_slopes_are_those_of_finite_differences_and_of_autograd(activation):
    module = network(activation)
    dense, other = as_network(module), ModuleNetwork(module)
    assert isinstance(dense, DenseNetwork)
    x, up = torch.from_numpy(people(4)), torch.from_numpy(people(4, 3))
    axes = torch.from_numpy(people(5, 2))
    slopes = []
    for one in (dense, other):
        outputs, saved = one.tail(one.root(x))
        assert torch.allclose(outputs, module(x).detach())
        slopes.append(one.image(axes).slope(one.slope(saved, up)).detach().numpy())
    assert np.abs(slopes[0] - slopes[1]).max() < 1e-12
    step = 1e-6
    for place in range(2):
        move = step * axes[:, place]
        with torch.no_grad():
            change = ((module(x + move) - module(x - move)) * up).sum(dim=1) / (2 * step)
        assert np.abs(change.numpy() - slopes[0][:, place]).max() < 1e-7


def test_hand_written_parameter_slopes_are_those_of_autograd():
    module = network("ReLU")
    dense = as_network(module)
    x, up = torch.from_numpy(people(9)), torch.from_numpy(people(9, 3))
    into = [(torch.empty_like(w), torch.empty_like(b)) for w, b, _ in dense.layers]
    with torch.no_grad():
        _, saved = dense.tail(dense.root(x))
        dense.parameter_slopes(x, saved, up, into)
    module(x).backward(up)
    wanted = [part.grad for part in module.parameters()]
    found = [part for pair in into for part in pair]
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize(
    "module",
    [
        lambda: torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2)),
        lambda: torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.GELU(), torch.nn.Linear(4, 2)),
        lambda: torch.nn.Sequential(torch.nn.Linear(5, 2, bias=False)),
    ],
)
def test_other_modules_are_differentiated_automatically(module):
    assert isinstance(as_network(module()), ModuleNetwork)


def test_geometry_splits_what_is_free_from_what_costs():
    x = people()
    matrix = people(5, 3, seed=2)
    found = Geometry.learn(x, matrix)
    both = np.column_stack([found.free, found.paid])
    assert np.abs(both.T @ both - np.eye(5)).max() < 1e-12
    assert np.abs(found.free.T @ matrix).max() < 1e-9
    s, t = people(7, 2, seed=3), people(7, 3, seed=4)
    move = s @ found.free.T + t @ found.paid.T
    assert np.allclose(((move @ matrix) ** 2).sum(1), (t**2) @ found.price)
    assert np.allclose(found.low, (x @ found.free).min(0))
    z = x @ matrix
    far = ((z[:, None] - z[None]) ** 2).sum(-1).mean()
    assert found.reach == pytest.approx(np.sqrt(far))


def test_a_metric_that_ignores_everything_or_nothing():
    x = people()
    assert Geometry.learn(x, np.zeros((5, 2))).paid.shape == (5, 0)
    assert Geometry.learn(x, np.eye(5)).free.shape == (5, 0)


@pytest.mark.parametrize(
    ("features", "matrix", "says"),
    [
        (people(), np.eye(4), "for 4 features, but there are 5"),
        (people() * np.nan, np.eye(5), "not finite"),
        (np.zeros((0, 5)), np.eye(5), "at least one row"),
    ],
)
def test_geometry_refuses_what_does_not_fit(features, matrix, says):
    with pytest.raises(DataError, match=says):
        Geometry.learn(features, matrix)


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (lambda: torch.nn.Linear(4, 2), "fails on rows of 5 features"),
        (lambda: torch.nn.Linear(5, 3), r"gives the shape \[2, 3\] for 2 rows; it must give \[2\] or \[2, 1\] or"),
        (lambda: torch.nn.Unflatten(1, (5, 1)), "for 2 rows"),
    ],
)
def test_modules_of_the_wrong_shape(module, says):
    with pytest.raises(ModelError, match=says):
        check_module(module(), 5, (1, 2))


def search(module, x, geometry, **how):
    with torch.no_grad():
        one, rows = as_network(module), torch.from_numpy(x)
        origin = Origin.of(one, rows)
        frame = Frame.of(geometry, rows)
        reward = Disparity(origin.outputs, output_directions(origin.outputs))
        found = worst_case(one, origin, rows, reward, frame, **how)
        return found, found.moved(rows, frame)


@pytest.mark.parametrize("activation", ["ReLU", "Tanh"])
def test_the_search_is_monotone_and_says_where_it_went(activation):
    x, module = people(), network(activation)
    geometry = Geometry.learn(x, people(5, 3, seed=2))
    last = np.zeros(len(x))
    for free_steps, steps in ((0, 0), (3, 0), (3, 1), (3, 2), (3, 6), (3, 30)):
        found, moved = search(module, x, geometry, multiplier=0.4, epsilon=0.1, free_steps=free_steps, steps=steps)
        value = (found.reward - 0.4 * found.cost).numpy()
        assert (value >= last - 1e-12).all()
        last = value
        with torch.no_grad():
            gap = module(moved) - module(torch.from_numpy(x))
        assert np.allclose(gap.square().mean(1).numpy(), found.reward.numpy())
        along = moved.numpy() @ geometry.free
        assert (along >= geometry.low - 1e-9).all()
        assert (along <= geometry.high + 1e-9).all()
        assert found.cost.max() <= geometry.reach**2 * (1 + 1e-9)
    assert value.mean() > 0


def test_a_linear_model_has_its_worst_case_in_closed_form():
    x = people()
    w = torch.tensor([[0.9, 0.5, -0.3, 0.2, 0.1]]).double()
    module = torch.nn.Linear(5, 1).double()
    module.weight.data, module.bias.data = w, torch.zeros(1).double()
    matrix = np.eye(5)[:, 1:]  # the first feature is free
    geometry = Geometry.learn(x, matrix)
    multiplier = 5.0  # large enough for the best moves to be within reach
    found, _ = search(module, x, geometry, multiplier=multiplier, epsilon=0.1, free_steps=3, steps=60)
    # max_t (D + g t)^2 - λ t^2 = D^2 λ / (λ - g^2), with D the larger free move and g = |w| along what costs
    g2 = float((w[0, 1:] ** 2).sum())
    far = 0.9 * np.maximum(x[:, 0].max() - x[:, 0], x[:, 0] - x[:, 0].min())
    wanted = far**2 * multiplier / (multiplier - g2)
    free = far**2
    value = (found.reward - multiplier * found.cost).numpy()
    assert np.abs(value / wanted - 1).max() < 1e-3
    assert (value > free).all()


def test_the_plan_over_candidates_is_the_linear_program_s():
    from scipy.optimize import linprog

    rng = np.random.default_rng(0)
    for case in range(40):
        n, count = rng.integers(1, 9), rng.integers(1, 6)
        gain = np.vstack([np.zeros(n), rng.random((count, n))]).round(1 if case % 2 else 12)
        cost = np.vstack([np.zeros(n), rng.random((count, n))]).round(1 if case % 2 else 12)
        weights = rng.random(n) + 0.01
        weights /= weights.sum()
        epsilon = [0.0, 0.05, 0.3, 5.0][case % 4]
        found = best_plan(gain, cost, weights, epsilon)
        rows = np.zeros((n, gain.size))
        for j in range(n):
            rows[j, j::n] = 1
        lp = linprog(-(gain * weights).ravel(), A_ub=[(cost * weights).ravel()], b_ub=[epsilon],
                     A_eq=rows, b_eq=np.ones(n))  # fmt: skip
        assert found.value == pytest.approx(-lp.fun, abs=1e-9)


def test_outside_the_sample_a_linear_model_s_number_is_known():
    x = people(300)
    w = np.array([0.5, -0.3, 0.2, 0.1, 0.4])
    module = torch.nn.Linear(5, 1).double()
    module.weight.data, module.bias.data = torch.from_numpy(w[None]), torch.zeros(1).double()
    rows = torch.from_numpy(x)
    geometry = Geometry.learn(x, np.eye(5))
    weights = np.full(300, 1 / 300)
    for epsilon in (0.01, 0.1, 1.0):
        found = search_outside(as_network(module), rows, Frame.of(geometry, rows), epsilon, weights=weights).choice
        # E (w t)^2 under E |t|^2 = ε is |w|^2 ε, however the budget is shared out
        assert found.value == pytest.approx((w @ w) * epsilon, rel=0.01)
        assert found.value <= (w @ w) * epsilon * (1 + 1e-9)
    zero = search_outside(as_network(module), rows, Frame.of(geometry, rows), 0.0, weights=weights)
    assert zero.choice.value == 0.0


def test_a_constant_model_has_nothing_to_find():
    x = people(50)
    module = torch.nn.Linear(5, 2).double()
    module.weight.data.zero_()
    rows = torch.from_numpy(x)
    frame = Frame.of(Geometry.learn(x, np.eye(5)[:, :3]), rows)
    found = search_outside(as_network(module), rows, frame, 0.1, weights=np.full(50, 0.02))
    assert found.choice.value == 0.0


@pytest.mark.parametrize("rows", [1, 10_000])
def test_an_image_is_the_same_map_in_factors_and_multiplied_out(rows):
    rng = np.random.default_rng(0)
    first, last = (torch.from_numpy(rng.normal(size=shape)) for shape in ((7, 9), (9, 30)))
    u, moves, slope = (torch.from_numpy(rng.normal(size=shape)) for shape in ((4, 30), (4, 7), (4, 30)))
    image = Image([first, last]).for_rows(rows)
    assert len(image.factors) == (2 if rows == 1 else 1)
    whole = first @ last
    torch.testing.assert_close(image.move(u, moves), u + moves @ whole)
    torch.testing.assert_close(image.slope(slope), slope @ whole.t())


# numba starts without the rest of scipy.linalg, and whoever wants that later gets the real one.
pytest.importorskip("numba")

CODE = """
import sys
import numpy as np
from fairkit_similarity.search.starting import start_numba
start_numba()
from fairkit_similarity.search.problem import same_rows
group, first = same_rows(np.array([[1.0], [2.0], [1.0]]))
assert group.tolist() == [0, 1, 0] and first.tolist() == [0, 1]
assert "scipy.linalg" not in sys.modules and "scipy.linalg.cython_blas" in sys.modules
import numba
dot = numba.njit(lambda a, b: a @ b)
assert np.allclose(dot(np.eye(2), np.full((2, 2), 3.0)), 3.0)
import scipy.linalg
assert np.allclose(scipy.linalg.solve(2.0 * np.eye(2), [1.0, 2.0]), [0.5, 1.0])
from scipy.linalg import cython_blas
start_numba()
assert sys.modules["scipy.linalg"] is scipy.linalg
print("fine")
"""


@pytest.mark.long
def test_numba_finds_blas_and_scipy_stays_whole():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr
