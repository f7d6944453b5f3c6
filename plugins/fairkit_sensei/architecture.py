"""A trained network in the units of its target."""

from __future__ import annotations

from typing import Any


def in_units(module: Any, scale: float, shift: float) -> Any:
    """Put a network that learned scaled numbers back into their unit: the outputs times scale, plus shift."""
    import torch

    from fairkit_similarity.networks import dense_layers

    with torch.no_grad():
        if dense_layers(module) is not None:
            last = [part for part in module.modules() if isinstance(part, torch.nn.Linear)][-1]
            if list(module.modules())[-1] is last:
                last.weight.mul_(scale)
                last.bias.mul_(scale).add_(shift)
                return module
        affine = torch.nn.Linear(1, 1)
        affine.weight.fill_(scale)
        affine.bias.fill_(shift)
    return torch.nn.Sequential(module, _Column(), affine)


def _Column() -> Any:  # noqa: N802 - it stands for a module
    import torch

    return torch.nn.Sequential(torch.nn.Flatten(0), torch.nn.Unflatten(0, (-1, 1)))
