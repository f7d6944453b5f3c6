"""The training loop: what it minimises, λ, batches, speed paths that agree, and what it refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.optional import LazyModule

from fairkit.errors import DataError, ModelError, ParameterError
from fairkit_repair.learners import fully_connected
from fairkit_sensei import fit_network
from fairkit_sensei.networks import SenSeIRows, SenSeISettings, usual_rho
from fairkit_sensei.training import BalancedBatches, loss_for, train
from fairkit_similarity.metric import Geometry

torch = LazyModule("torch")


def tilted(n=400, seed=0):
    """Figure 1 of the paper: the label depends on both features, the metric ignores the first."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    y = (x[:, 0] + x[:, 1] + 0.3 * rng.normal(size=n) > 0).astype(float)
    return x.astype(np.float32), y


QUICK = {"epochs": 30, "batch": 64, "rate": 0.02, "hidden": (16,)}


def slope_of_boundary(module):
    """How much the first feature counts against the second, over the plane."""
    grid = np.stack(np.meshgrid(np.linspace(-1.5, 1.5, 21), np.linspace(-1.5, 1.5, 21)), -1).reshape(-1, 2)
    points = torch.tensor(grid, dtype=torch.float32, requires_grad=True)
    out = module(points)
    (slope,) = torch.autograd.grad((out[:, 1] - out[:, 0]).sum(), points)
    across, up = slope.abs().mean(dim=0).tolist()
    return across / up


def fit(x, y, **how):
    return fit_network(x, y, directions=[[1.0, 0.0]], **(QUICK | how))


@pytest.mark.long
def test_figure_1_the_boundary_turns_with_rho_and_sensr_is_level_at_epsilon_0():
    x, y = tilted()
    turned = [slope_of_boundary(fit(x, y, rho=rho, epsilon=0.0).module) for rho in (0.0, 0.1, 10.0)]
    assert turned[0] > 0.8
    assert turned[0] > 1.2 * turned[1] > 1.2 * 1.2 * turned[2]
    assert turned[2] < 0.1
    assert slope_of_boundary(fit(x, y, method="sensr", epsilon=0.0).module) < 0.1


def test_rho_0_is_the_plain_network_bit_for_bit():
    x, y = tilted()
    free, plain = fit(x, y, rho=0.0), fit(x, y, method="erm")
    assert all(torch.equal(a, b) for a, b in zip(free.module.parameters(), plain.module.parameters(), strict=True))


@pytest.mark.parametrize("method", ["sensei", "sensr"])
def test_one_seed_gives_one_network(method):
    x, y = tilted()
    runs = [fit(x, y, method=method, epochs=3, seed=seed).module for seed in (0, 0, 1)]
    first, again, other = ([part.detach() for part in run.parameters()] for run in runs)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def wrapped(inner):
    """Return the same network where its layers cannot be seen."""

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    return Wrapped()


@pytest.mark.parametrize("method", ["sensei", "sensr", "erm"])
def test_hand_written_steps_and_automatic_ones_learn_the_same(method):
    x, y = tilted()
    start = fully_connected(2, (16,), 2, seed=3)
    fast = fit(x, y, method=method, epochs=3, module=start)
    slow = fit(x, y, method=method, epochs=3, module=wrapped(start))
    for one, two in zip(fast.history, slow.history, strict=True):
        assert one["objective"] == pytest.approx(two["objective"], rel=1e-3)
        assert one["multiplier"] == pytest.approx(two["multiplier"], rel=1e-3)
    assert torch.equal(start[0].weight, fully_connected(2, (16,), 2, seed=3)[0].weight)  # the given module is copied


def test_the_multiplier_moves_as_published():
    x, y = tilted(64)
    found = fit(x, y, rho=2.0, epsilon=0.3, multiplier=0.7, multiplier_rate=0.01, epochs=1, batch=64, rate=1e-9)
    record = found.history[0]  # one batch: λ ← max(0, λ - η ρ (ε - mean d²))
    assert record["distance"] > 0
    assert record["multiplier"] == pytest.approx(max(0, 0.7 - 0.01 * 2.0 * (0.3 - record["distance"])))
    low = fit(x, y, rho=2.0, epsilon=9.0, multiplier=0.01, multiplier_rate=10.0, epochs=1, batch=64)
    assert low.history[0]["multiplier"] == 0.0


@pytest.mark.long
def test_the_mean_distance_settles_at_epsilon():
    x, y = tilted(1000)
    found = fit(x, y, rho=5.0, epsilon=0.2, epochs=60)
    assert found.history[-1]["distance"] == pytest.approx(0.2, rel=0.3)


@pytest.mark.long
def test_the_regulariser_falls_with_rho_and_the_loss_rises():
    x, y = tilted()
    found = [fit(x, y, rho=rho).history[-1] for rho in (0.1, 1.0, 20.0)]
    gaps, losses = [r["disparity"] for r in found], [r["loss"] for r in found]
    assert gaps[0] > gaps[1] > gaps[2]
    assert losses[0] < losses[1] < losses[2]


@pytest.mark.parametrize(("outputs", "regression"), [(3, False), (1, False), (1, True)])
def test_losses_have_the_gradients_of_autograd(outputs, regression):
    loss = loss_for(outputs, regression=regression)
    out = torch.randn(6, outputs, dtype=torch.float64, requires_grad=True)
    y = torch.randn(6).double() if regression else torch.tensor([0, 1, 1, 0, 1, 0])
    value, slope = loss(out, y)
    wanted = {
        "squared": lambda: (out[:, 0] - y) ** 2,
        "logistic": lambda: torch.nn.functional.binary_cross_entropy_with_logits(
            out[:, 0], y.double(), reduction="none"
        ),
        "cross_entropy": lambda: torch.nn.functional.cross_entropy(out, y, reduction="none"),
    }[loss.name]()
    assert torch.allclose(value, wanted)
    assert torch.allclose(slope, torch.autograd.grad(wanted.sum(), out)[0])


def test_batches_hold_every_class_equally_and_rows_once_before_twice():
    classes = np.array([0] * 90 + [1] * 10)
    batches = list(BalancedBatches(classes, 10, np.random.default_rng(0)).epoch())
    assert len(batches) == 10
    assert all((classes[rows] == 0).sum() == 5 for rows in batches)
    drawn = np.concatenate(batches)
    assert len(np.unique(drawn[classes[drawn] == 0])) == 50
    assert np.bincount(drawn, minlength=100)[90:].min() == 5


def test_weights_become_chances():
    classes, weights = np.zeros(4, int), np.array([0.0, 1.0, 1.0, 2.0])
    batches = BalancedBatches(classes, 4, np.random.default_rng(0), weights)
    drawn = np.concatenate([rows for _ in range(2000) for rows in batches.epoch()])
    assert np.abs(np.bincount(drawn, minlength=4) / len(drawn) - weights / 4).max() < 0.02


def test_training_stops_early_and_keeps_the_best_epoch():
    x, y = tilted(600)
    found = fit(x[:60], y[:60], method="erm", validation=(x[60:], y[60:]), epochs=200, patience=3, hidden=(64,))
    values = [record["validation"] for record in found.history]
    assert len(values) < 200
    assert found.best == int(np.argmin(values)) + 1


def test_a_diverging_loss_is_told_and_the_best_network_kept():
    x, y = tilted()
    found = fit(x, y * 1.0, method="erm", regression=True, rate=1e6, epochs=5)
    assert "diverged in epoch" in found.notes[0]
    assert f"the network of epoch {found.best} is kept" in found.notes[0]
    assert all(torch.isfinite(part).all() for part in found.module.parameters())


def test_epsilon_0_and_whole_numbers_and_no_distance_at_all():
    x, y = tilted()
    whole, exact = fit(x, y, epsilon=1, epochs=2), fit(x, y, epsilon=1.0, epochs=2)
    assert whole.history == exact.history
    still = fit_network(x, y, sigma=np.eye(2), epsilon=0, epochs=2)  # nothing may move
    assert still.history[-1]["disparity"] == 0.0
    assert np.isfinite(still.history[-1]["multiplier"])
    same = fit_network(np.ones((40, 2)), [0, 1] * 20, sigma=np.eye(2), epochs=2)  # all rows at one place
    assert same.history[-1]["distance"] == 0.0


def test_warm_starts_are_never_worse():
    x, y = tilted()
    cold, warm = (fit(x, y, warm_start=w, epochs=1, rate=1e-9, batch=400) for w in (False, True))
    assert warm.history[0]["objective"] >= cold.history[0]["objective"] - 1e-6


def test_logit_pairing_with_given_counterfactuals_makes_them_alike():
    x, y = tilted()
    other = x + np.array([[1.0, 0.0]])
    alike = fit_network(x, y, method="clp", rho=20.0, counterfactuals=(other, np.arange(len(x))), **QUICK).module
    plain = fit_network(x, y, method="erm", **QUICK).module
    with torch.no_grad():
        gaps = [
            float((net(torch.tensor(other, dtype=torch.float32)) - net(torch.tensor(x))).square().mean())
            for net in (alike, plain)
        ]
    assert gaps[0] < 0.01 * gaps[1]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"batch": 1}, ParameterError, "batch of 1 rows cannot hold 2 classes"),
        ({"module": lambda: torch.nn.Linear(2, 5)}, ModelError, r"gives the shape \[2, 5\]"),
        ({"module": lambda: torch.nn.Linear(3, 2)}, ModelError, "fails on rows of 2 features"),
        ({"module": "net"}, ModelError, "no torch module"),
        ({"directions": [[1.0, 0.0, 0.0]]}, DataError, "do not fit 2 features"),
        ({"directions": None, "sigma": np.eye(3)}, DataError, "2 features need"),
        ({"directions": None}, ParameterError, "one of metric, directions and sigma"),
        ({"directions": np.eye(2)}, DataError, "no direction left"),
        ({"epsilon": -1.0}, ParameterError, "epsilon=-1.0"),
        ({"rho": np.inf}, ParameterError, "rho=inf"),
        ({"epoch": 3}, ParameterError, "no setting 'epoch'"),
        ({"method": "sensi"}, ParameterError, "Did you mean"),
        ({"method": "clp"}, ParameterError, "needs counterfactuals"),
        ({"sample_weight": [1.0]}, DataError, "sample_weight"),
        ({"counterfactuals": (np.zeros((3, 5)), [0, 1, 2])}, DataError, "5 features"),
        ({"counterfactuals": (np.zeros((1, 2)), [900])}, DataError, "belongs to row 900"),
    ],
)
def test_bad_input_is_one_clear_error(change, error, says):
    x, y = tilted(60)
    change = {name: value() if callable(value) else value for name, value in change.items()}
    with pytest.raises(error, match=says):
        fit_network(x, y, **({"directions": [[1.0, 0.0]]} | change))


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (np.zeros((5, 2)), np.zeros(5), "the same class"),
        (np.zeros((5, 2)), np.arange(4), "do not fit"),
        (np.full((5, 2), np.nan), [0, 1, 0, 1, 0], "not finite"),
        (np.zeros((5, 2)), [0, 0.5, 1, 1, 0], "regression=True"),
    ],
)
def test_bad_rows_are_refused(x, y, says):
    with pytest.raises(DataError, match=says):
        fit_network(x, y, directions=[[1.0, 0.0]])


def test_a_metric_of_another_width_is_refused_where_it_is_used():
    x, y = tilted(60)
    geometry = Geometry.learn(np.random.default_rng(0).normal(size=(9, 3)), np.eye(3))
    with pytest.raises(DataError, match="for 3 features, but there are 2"):
        train(fully_connected(2, (4,), 2, seed=0), SenSeIRows(x=x, target=y), SenSeISettings(), geometry=geometry)


def test_threads_and_the_global_generator_are_left_as_they_were():
    x, y = tilted(60)
    torch.manual_seed(5)
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    fit(x, y, epochs=1)
    assert torch.equal(state, torch.random.get_rng_state())
    assert threads == torch.get_num_threads()


def test_settings_and_parameters_have_the_same_defaults():
    from fairkit_sensei.plugin import SenSeI

    shown = {field.name: field.default for field in dataclasses.fields(SenSeI.Parameters)}
    for field in dataclasses.fields(SenSeISettings):
        if field.name in shown and field.name != "rho":
            assert shown[field.name] == field.default, field.name
    assert shown["rho"] is None
    assert usual_rho(39_000) == usual_rho(20_000) == SenSeISettings().rho
    assert 0.3 < usual_rho(5_800) < 0.5
    assert usual_rho(100) == 0.3


def test_small_tables_get_smaller_batches_and_more_epochs():
    large, small = SenSeISettings().resolved(36_000, 2), SenSeISettings().resolved(600, 2)
    assert (large.batch, large.epochs, large.patience) == (256, 10, 5)
    assert (small.batch, small.epochs) == (32, 70)
    assert SenSeISettings(epochs=3, batch=7, patience=2).resolved(600, 2) == SenSeISettings(
        epochs=3, batch=7, patience=2
    )
