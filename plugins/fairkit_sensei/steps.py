"""Gradient steps on a network's parameters, from the gradient in its outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fairkit_similarity.networks import DenseNetwork, ModuleNetwork, as_matrix, dense_layers

if TYPE_CHECKING:
    from fairkit_similarity.networks import Network

Tensor = Any


class Stepper(Protocol):
    """A network that learns: outputs with gradients in, changed parameters out."""

    network: Network

    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs (n, K) of a training step; `step` follows."""

    def step(self, up: Tensor) -> None:
        """Descend along the gradient of <up, outputs> in the parameters."""

    def state(self) -> Tensor:
        """Return a copy of the parameters."""

    def restore(self, state: Tensor) -> None:
        """Put a copy back."""


class DenseStepper:
    """A fully connected network whose parameters lie in one vector: one gradient, one Adam step, few calls.

    The module's own parameters become views of that vector, so that the module always is the network.
    """

    def __init__(self, module: Any, rate: float, decay: float) -> None:
        import torch

        layers = dense_layers(module)
        assert layers is not None  # noqa: S101 -- the caller asked `stepper`
        sizes = [part.numel() for weight, bias, _ in layers for part in (weight, bias)]
        self.theta = torch.cat([part.reshape(-1) for w, b, _ in layers for part in (w, b)]).clone()
        self.theta.grad = torch.zeros_like(self.theta)
        shapes = [part.shape for weight, bias, _ in layers for part in (weight, bias)]
        views, slopes = (
            [piece.view(shape) for piece, shape in zip(torch.split(flat, sizes), shapes, strict=True)]
            for flat in (self.theta, self.theta.grad)
        )
        linear = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
        for place, part in enumerate(linear):
            part.weight.data, part.bias.data = views[2 * place], views[2 * place + 1]
        self.network = DenseNetwork([(views[2 * i], views[2 * i + 1], layer[2]) for i, layer in enumerate(layers)])
        self.slopes = [(slopes[2 * i], slopes[2 * i + 1]) for i in range(len(layers))]
        self.optimizer = torch.optim.AdamW([self.theta], lr=rate, weight_decay=decay, fused=True)

    def outputs(self, x: Tensor) -> Tensor:
        """See `Stepper`."""
        self._x = x
        outputs, self._saved = self.network.tail(self.network.root(x))
        return outputs

    def step(self, up: Tensor) -> None:
        """See `Stepper`."""
        self.network.parameter_slopes(self._x, self._saved, up, self.slopes)
        self.optimizer.step()

    def state(self) -> Tensor:
        """See `Stepper`."""
        return self.theta.clone()

    def restore(self, state: Tensor) -> None:
        """See `Stepper`."""
        self.theta.copy_(state)


class ModuleStepper:
    """Any module, by automatic differentiation."""

    def __init__(self, module: Any, rate: float, decay: float) -> None:
        import torch

        self.module, self.network = module, ModuleNetwork(module)
        self.optimizer = torch.optim.AdamW(
            [part for part in module.parameters() if part.requires_grad], lr=rate, weight_decay=decay
        )

    def outputs(self, x: Tensor) -> Tensor:
        """See `Stepper`."""
        import torch

        self.module.train()
        with torch.enable_grad():
            self._outputs = as_matrix(self.module(x))
        self.module.eval()
        return self._outputs.detach()

    def step(self, up: Tensor) -> None:
        """See `Stepper`."""
        self.optimizer.zero_grad(set_to_none=True)
        self._outputs.backward(up)
        self.optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """See `Stepper`."""
        return {name: value.clone() for name, value in self.module.state_dict().items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """See `Stepper`."""
        self.module.load_state_dict(state)


def stepper(module: Any, rate: float, decay: float) -> DenseStepper | ModuleStepper:
    """Choose by the module: fully connected networks whose layers are all trained, or any other."""
    layers = dense_layers(module)
    learns = all(part.requires_grad for part in module.parameters())
    return ModuleStepper(module, rate, decay) if layers is None or not learns else DenseStepper(module, rate, decay)
