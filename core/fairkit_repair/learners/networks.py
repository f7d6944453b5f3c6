"""Small torch networks for methods that train their own: their layers, where they compute, with how many threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fairkit.errors import MissingExtraError, ParameterError

SMALL = 2_000_000
"""Products of fewer numbers than this are done sooner by one thread than shared out."""


def device_for(name: str, *, extra: str) -> Any:
    """Return the torch device: ``auto`` is a GPU where there is one; `extra` names what installs torch."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", extra) from error
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ParameterError(
            "device=cuda: torch finds no GPU here; use device=cpu, or auto to take one where there is one"
        )
    return torch.device(name)


@contextmanager
def one_pool(module: Any, batch: int, threads: int | None) -> Iterator[None]:
    """Set torch's threads for a training, and put the old number back."""
    import torch

    before = torch.get_num_threads()
    size = max((part.numel() for part in module.parameters()), default=0) * batch
    wanted = threads if threads is not None else 1 if size < SMALL else before
    torch.set_num_threads(max(1, wanted))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fully_connected(width: int, hidden: Sequence[int], outputs: int, *, seed: int) -> Any:
    """Make a network with ReLU between its layers."""
    import torch
    from torch import nn

    sizes = [width, *hidden, outputs]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[Any] = []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
