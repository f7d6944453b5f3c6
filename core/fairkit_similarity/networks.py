"""Torch networks as the search for worst cases sees them: one linear step at the root, and what comes behind it.

A row x becomes the root u = root(x), an affine function of x; the outputs are tail(u). A search that moves x
along some axes moves u along their images, so that its steps never touch x itself. Fully connected networks
have their first layer at the root and hand-written derivatives; any other module is its own tail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit_similarity.encode import Design, Floats


Tensor = Any
Activation = str | None


class Network(Protocol):
    """What the search needs of a network."""

    def root(self, x: Tensor) -> Tensor:
        """Return u for rows x, shape (n, d) to (n, h)."""

    def image(self, axes: Tensor) -> Image:
        """Return the linear part of `root` applied to axes, shape (d, a): how u moves along them."""

    def tail(self, u: Tensor) -> tuple[Tensor, Any]:
        """Return the outputs, shape (n, K), and what `slope` needs."""

    def slope(self, saved: Any, up: Tensor) -> Tensor:
        """Return the gradient of <up, outputs> in u, shape (n, h)."""


class Image:
    """A linear map from moves along axes, shape (n, a), to moves of the root, shape (n, h)."""

    def __init__(self, factors: Sequence[Tensor]) -> None:
        self.factors = list(factors)

    def for_rows(self, rows: int) -> Image:
        """Return the same map, multiplied out where that is less work for so many rows, counted over all moves."""
        sizes = [part.numel() for part in self.factors]
        first, last = self.factors[0], self.factors[-1]
        if len(sizes) == 1:
            return self
        whole = first.shape[0] * last.shape[1]
        making = first.shape[0] * first.shape[1] * last.shape[1]
        return Image([first @ last]) if making + rows * whole < rows * sum(sizes) else self

    def move(self, u: Tensor, moves: Tensor) -> Tensor:
        """Return u moved along the axes."""
        import torch

        for part in self.factors[:-1]:
            moves = moves @ part
        return torch.addmm(u, moves, self.factors[-1])

    def slope(self, slope: Tensor) -> Tensor:
        """Return the slope in the moves, shape (n, a), from the slope in u, shape (n, h)."""
        for part in reversed(self.factors):
            slope = slope @ part.t()
        return slope


class DenseNetwork:
    """A fully connected network with derivatives written by hand.

    Notes
    -----
    The derivative of an activation is computed from its output, so that nothing else is kept.
    """

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor, Activation]]) -> None:
        self.layers = list(layers)

    def root(self, x: Tensor) -> Tensor:
        """See `Network`."""
        import torch

        weight, bias, _ = self.layers[0]
        return torch.addmm(bias, x, weight.t())

    def image(self, axes: Tensor) -> Image:
        """See `Network`."""
        return Image([axes.t(), self.layers[0][0].t()])

    def tail(self, u: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Network`; what is kept are the outputs of every layer."""
        import torch

        first = self.layers[0][2]
        value = u if first is None else getattr(torch, first)(u)
        outputs = [value]
        for weight, bias, activation in self.layers[1:]:
            value = torch.addmm(bias, value, weight.t())
            if activation is not None:
                value = getattr(torch, f"{activation}_")(value)
            outputs.append(value)
        return value, outputs

    def slope(self, saved: list[Tensor], up: Tensor) -> Tensor:
        """See `Network`."""
        for index in range(len(self.layers) - 1, 0, -1):
            weight, _, activation = self.layers[index]
            up = _descend(up, saved[index], activation) @ weight
        return _descend(up, saved[0], self.layers[0][2])

    def parameter_slopes(
        self, x: Tensor, saved: list[Tensor], up: Tensor, into: Sequence[tuple[Tensor, Tensor]]
    ) -> None:
        """Write the gradient of <up, outputs> in every weight and bias into given tensors."""
        import torch

        for index in range(len(self.layers) - 1, -1, -1):
            weight, _, activation = self.layers[index]
            up = _descend(up, saved[index], activation)
            torch.mm(up.t(), x if index == 0 else saved[index - 1], out=into[index][0])
            torch.sum(up, dim=0, out=into[index][1])
            if index:
                up = up @ weight


class ModuleNetwork:
    """Any module, by automatic differentiation; the root is the row itself."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def root(self, x: Tensor) -> Tensor:
        """See `Network`."""
        return x

    def image(self, axes: Tensor) -> Image:
        """See `Network`."""
        return Image([axes.t()])

    def tail(self, u: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """See `Network`; what is kept is the graph."""
        import torch

        with torch.enable_grad():
            leaf = u.detach().requires_grad_(True)
            out = as_matrix(self.module(leaf))
        return out.detach(), (leaf, out)

    def slope(self, saved: tuple[Tensor, Tensor], up: Tensor) -> Tensor:
        """See `Network`."""
        import torch

        leaf, out = saved
        if not out.requires_grad:
            return torch.zeros_like(leaf)
        (gradient,) = torch.autograd.grad(out, leaf, up, retain_graph=True, allow_unused=True)
        return torch.zeros_like(leaf) if gradient is None else gradient


def dense_layers(module: Any) -> list[tuple[Tensor, Tensor, Activation]] | None:
    """Return the layers of a chain of linear layers, each with at most one known activation; else None.

    The tensors are the module's own.
    """
    from torch import nn

    names = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}
    if type(module) is nn.Linear:
        module = nn.Sequential(module)
    if type(module) is not nn.Sequential:
        return None
    layers: list[tuple[Tensor, Tensor, Activation]] = []
    for part in module:
        if type(part) is nn.Linear and part.bias is not None:
            layers.append((part.weight.detach(), part.bias.detach(), None))
        elif type(part) in names and layers and layers[-1][2] is None:
            layers[-1] = (layers[-1][0], layers[-1][1], names[type(part)])
        elif type(part) is not nn.Identity:
            return None
    return layers or None


def as_matrix(outputs: Tensor) -> Tensor:
    """Return outputs of shape (n,) or (n, K) as a matrix."""
    return outputs.reshape(len(outputs), -1)


def check_module(module: Any, width: int, outputs: Sequence[int]) -> int:
    """Run a module on two rows and return its number of outputs."""
    import torch

    first = next(iter(module.parameters()), torch.zeros(()))
    training = module.training
    try:
        module.eval()
        with torch.no_grad():
            shape = tuple(module(torch.zeros(2, width, dtype=first.dtype, device=first.device)).shape)
    except Exception as error:
        raise ModelError(f"the torch module fails on rows of {width} features: {str(error).splitlines()[0]}") from error
    finally:
        module.train(training)
    result = 1 if len(shape) == 1 else shape[-1]
    if not shape or shape[0] != 2 or len(shape) > 2 or result not in outputs:
        wanted = " or ".join("[2] or [2, 1]" if count == 1 else f"[2, {count}]" for count in outputs)
        raise ModelError(f"the torch module gives the shape {list(shape)} for 2 rows; it must give {wanted}")
    return result


def _descend(up: Tensor, output: Tensor, activation: Activation) -> Tensor:
    import torch

    if activation is None:
        return up
    if activation == "relu":
        return torch.ops.aten.threshold_backward(up, output, 0)
    if activation == "tanh":
        return torch.ops.aten.tanh_backward(up, output)
    return torch.ops.aten.sigmoid_backward(up, output)


# Linear models that predict one column from the others: the directions that a subspace metric ignores.


TOGETHER = 8
"""So many one-against-rest models take their steps together: they share what does not depend on the weights."""

MOST_STEPS = 100

CLOSE = 1e-12
"""A model is done after a step that should lower its objective by less than this for each row. The next one would
lower it by about the square."""

STEEPEST = 500.0
"""Margins beyond this have no room in an exponential; their rows weigh nothing."""

PENALTIES = np.logspace(-3, 3, 7)


def logistic_directions(design: Design, targets: NDArray[np.bool_], strength: float) -> Floats:
    """Fit logistic models, one for each row of targets, that share the features.

    Each minimises Σ_i log(1 + exp(-t_i (x_i·w + b))) + ½ strength ‖w‖² over w and b, with t = ±1.
    """
    chunks = [targets[start : start + TOGETHER] for start in range(0, len(targets), TOGETHER)]
    return np.concatenate([_newton(design, chunk, strength) for chunk in chunks])


def ridge_direction(design: Design, target: Floats) -> Floats:
    """Fit a ridge regression whose penalty, one of `PENALTIES`, has the least leave-one-out error."""
    features = design.dense()
    features -= features.mean(axis=0)
    centred = target - target.mean()
    value, axes = np.linalg.eigh(features.T @ features)
    value = np.maximum(value, 0.0)
    turned = features @ axes
    along = turned.T @ centred
    errors = []
    for penalty in PENALTIES:
        shrunk = 1.0 / (value + penalty)
        left = centred - turned @ (along * shrunk)
        leverage = 1.0 / len(target) + turned**2 @ shrunk
        errors.append(float(np.mean((left / (1.0 - leverage)) ** 2)))
    best = PENALTIES[int(np.argmin(errors))]
    coefficients: Floats = axes @ (along / (value + best))
    return coefficients


def _newton(design: Design, targets: NDArray[np.bool_], strength: float) -> Floats:
    """Take Newton's steps in all models until none would gain from another."""
    penalty = np.full(design.width, strength)
    penalty[-1] = 0.0
    sign = np.where(targets, 1.0, -1.0)
    share = targets.mean(axis=1)
    models = np.zeros((len(targets), design.width))
    models[:, -1] = np.log(share / (1.0 - share))
    margin = sign * models[:, -1:]
    open_ = np.arange(len(targets))
    for _ in range(MOST_STEPS):
        wrong = 1.0 / (1.0 + np.exp(np.minimum(margin[open_], STEEPEST)))
        grams = design.grams(wrong * (1.0 - wrong))
        still = []
        for index, model in enumerate(open_):
            slope = penalty * models[model] - design.transposed(sign[model] * wrong[index])
            step = -_solve(grams[index], penalty, slope)
            gain = -float(slope @ step)
            if gain > 0.0:
                _search(design, models[model], margin[model], sign[model], step, penalty, gain)
            if gain > CLOSE * design.rows:
                still.append(model)
        open_ = np.array(still, dtype=np.int64)
        if not len(open_):
            break
    return models[:, :-1]


def _search(
    design: Design, model: Floats, margin: Floats, sign: Floats, step: Floats, penalty: Floats, gain: float
) -> None:
    """Go along a step, half as far until the objective falls as it should; change model and margin in place."""
    along = sign * design.times(step)
    before = _objective(margin, model, penalty)
    length = 1.0
    while length > 1e-10:
        after = _objective(margin + length * along, model + length * step, penalty)
        if after <= before - 1e-4 * length * gain + 1e-12 * abs(before):
            model += length * step
            margin += length * along
            return
        length /= 2.0


def _objective(margin: Floats, model: Floats, penalty: Floats) -> float:
    """Return Σ log(1 + exp(-margin)) + ½ Σ penalty w²."""
    return float(np.logaddexp(0.0, -margin).sum() + 0.5 * (penalty * model**2).sum())


def _solve(gram: Floats, penalty: Floats, slope: Floats) -> Floats:
    """Solve (gram + diag(penalty)) x = slope, by least squares where that is singular."""
    matrix = gram + np.diag(penalty)
    try:
        result: Floats = np.linalg.solve(matrix, slope).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        result = np.linalg.lstsq(matrix, slope, rcond=None)[0].astype(np.float64, copy=False)
    return result


# How far apart two answers of a model are: d_Y, for training and audits alike.


def centred_logits(logits: Any) -> Any:
    """Return centred logits: the mean of squared differences over their columns is d_Y."""
    if logits.shape[1] == 1:
        return logits / 2.0
    if logits.shape[1] == 2:
        return (logits[:, 1:] - logits[:, :1]) / 2.0
    return logits - logits.mean(1)[:, None]


def squared_difference(gap: Any, *, logits: bool) -> tuple[Any, Any]:
    """Compute d_Y from h(x') - h(x), and its gradient in h(x')."""
    if logits and gap.shape[1] == 1:
        return gap[:, 0] ** 2 / 4.0, gap / 2.0
    if logits:
        gap = without_shift(gap)
    return (gap**2).mean(1), gap * (2.0 / gap.shape[1])


def without_shift(gap: Any) -> Any:
    """Return differences of logits less what all K share, shape (n, K); one logit has nothing to share it with."""
    return gap if gap.shape[1] == 1 else gap - gap.mean(1)[:, None]
