"""ONNX operators that have a gradient, in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Tensor = Any
Attributes = dict[str, Any]
Operator = Callable[[Sequence[Tensor], Attributes], Tensor]

FLOATS = (1, 10, 11, 16)
"""Element types of ONNX that a cast may go to without losing the gradient."""


def operators() -> dict[tuple[str, str], Operator]:
    """Return the operators by domain and name. Each takes its inputs (None where left out) and its attributes."""
    import torch
    from torch.nn import functional

    def elementwise(function: Callable[..., Tensor]) -> Operator:
        return lambda inputs, _: function(*inputs)

    simple: dict[str, Operator] = {
        "Add": lambda x, _: x[0] + x[1],
        "Sub": lambda x, _: x[0] - x[1],
        "Mul": lambda x, _: x[0] * x[1],
        "Div": lambda x, _: x[0] / x[1],
        "Pow": lambda x, _: x[0] ** x[1],
        "Neg": lambda x, _: -x[0],
        "MatMul": lambda x, _: x[0] @ x[1],
        "Identity": lambda x, _: x[0],
        "Dropout": lambda x, _: x[0],
        "Relu": elementwise(torch.relu),
        "Sigmoid": elementwise(torch.sigmoid),
        "Tanh": elementwise(torch.tanh),
        "Erf": elementwise(torch.erf),
        "Exp": elementwise(torch.exp),
        "Log": elementwise(torch.log),
        "Sqrt": elementwise(torch.sqrt),
        "Abs": elementwise(torch.abs),
        "Reciprocal": elementwise(torch.reciprocal),
        "Softplus": elementwise(functional.softplus),
        "LeakyRelu": lambda x, a: functional.leaky_relu(x[0], a.get("alpha", 0.01)),
        "Elu": lambda x, a: functional.elu(x[0], a.get("alpha", 1.0)),
        "Gelu": lambda x, a: functional.gelu(x[0], approximate=_text(a.get("approximate", "none"))),
        "Softmax": lambda x, a: torch.softmax(x[0], a.get("axis", -1)),
        "LogSoftmax": lambda x, a: torch.log_softmax(x[0], a.get("axis", -1)),
        "Concat": lambda x, a: torch.cat(list(x), dim=a["axis"]),
        "Transpose": lambda x, a: x[0].permute(a.get("perm", list(range(x[0].ndim))[::-1])),
        "Flatten": lambda x, a: x[0].reshape(_product(x[0].shape[: a.get("axis", 1)]), -1),
        "Cast": lambda x, _: x[0],
    }
    functions: dict[str, Operator] = {
        "Gemm": _gemm,
        "Clip": _clip,
        "Max": _most,
        "Min": _least,
        "Reshape": _reshape,
        "Squeeze": _squeeze,
        "Unsqueeze": _unsqueeze,
        "Gather": _gather,
        "ReduceSum": lambda x, a: _reduce(torch.sum, x, a),
        "ReduceMean": lambda x, a: _reduce(torch.mean, x, a),
        "BatchNormalization": _batch_norm,
        "LayerNormalization": _layer_norm,
    }
    learned: dict[str, Operator] = {"Scaler": _scaler, "LinearRegressor": _linear_regressor}
    table = {("", name): operator for name, operator in (simple | functions).items()}
    return table | {("ai.onnx.ml", name): operator for name, operator in learned.items()}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _product(sizes: Sequence[int]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def _integers(value: Any) -> list[int]:
    return [int(number) for number in (value.reshape(-1).tolist() if hasattr(value, "reshape") else value)]


def _gemm(x: Sequence[Tensor], a: Attributes) -> Tensor:
    left = x[0].t() if a.get("transA", 0) else x[0]
    right = x[1].t() if a.get("transB", 0) else x[1]
    product = a.get("alpha", 1.0) * (left @ right)
    return product if len(x) < 3 or x[2] is None else product + a.get("beta", 1.0) * x[2]


def _clip(x: Sequence[Tensor], a: Attributes) -> Tensor:
    import torch

    low = x[1] if len(x) > 1 else a.get("min")
    high = x[2] if len(x) > 2 else a.get("max")
    value = x[0]
    if low is not None:
        value = torch.maximum(value, torch.as_tensor(low, dtype=value.dtype))
    return value if high is None else torch.minimum(value, torch.as_tensor(high, dtype=value.dtype))


def _most(x: Sequence[Tensor], _: Attributes) -> Tensor:
    import functools

    import torch

    return functools.reduce(torch.maximum, x)


def _least(x: Sequence[Tensor], _: Attributes) -> Tensor:
    import functools

    import torch

    return functools.reduce(torch.minimum, x)


def _reshape(x: Sequence[Tensor], _: Attributes) -> Tensor:
    wanted = _integers(x[1])
    return x[0].reshape([x[0].shape[index] if size == 0 else size for index, size in enumerate(wanted)])


def _squeeze(x: Sequence[Tensor], a: Attributes) -> Tensor:
    axes = _integers(x[1]) if len(x) > 1 else a.get("axes")
    return x[0].squeeze(tuple(axes)) if axes is not None else x[0].squeeze()


def _unsqueeze(x: Sequence[Tensor], a: Attributes) -> Tensor:
    value = x[0]
    for axis in sorted(_integers(x[1]) if len(x) > 1 else a["axes"]):
        value = value.unsqueeze(axis)
    return value


def _gather(x: Sequence[Tensor], a: Attributes) -> Tensor:
    import torch

    axis = a.get("axis", 0) % x[0].ndim
    index = torch.as_tensor(x[1]).long()
    taken = x[0].index_select(axis, index.reshape(-1) % x[0].shape[axis])
    return taken.reshape([*x[0].shape[:axis], *index.shape, *x[0].shape[axis + 1 :]])


def _reduce(function: Callable[..., Tensor], x: Sequence[Tensor], a: Attributes) -> Tensor:
    axes = _integers(x[1]) if len(x) > 1 and x[1] is not None else a.get("axes", list(range(x[0].ndim)))
    return function(x[0], dim=tuple(axes), keepdim=bool(a.get("keepdims", 1)))


def _batch_norm(x: Sequence[Tensor], a: Attributes) -> Tensor:
    value, scale, shift, mean, spread = x
    return (value - mean) / (spread + a.get("epsilon", 1e-5)) ** 0.5 * scale + shift


def _layer_norm(x: Sequence[Tensor], a: Attributes) -> Tensor:
    from torch.nn import functional

    axis = a.get("axis", -1)
    bias = x[2] if len(x) > 2 else None
    return functional.layer_norm(x[0], x[0].shape[axis:], x[1], bias, a.get("epsilon", 1e-5))


def _scaler(x: Sequence[Tensor], a: Attributes) -> Tensor:
    import torch

    offset, scale = (torch.tensor(a[name], dtype=x[0].dtype) for name in ("offset", "scale"))
    return (x[0] - offset) * scale


def _linear_regressor(x: Sequence[Tensor], a: Attributes) -> Tensor:
    import torch

    weights = torch.tensor(a["coefficients"], dtype=x[0].dtype).reshape(a.get("targets", 1), -1)
    value = x[0] @ weights.t()
    return value + torch.tensor(a["intercepts"], dtype=value.dtype).reshape(1, -1) if "intercepts" in a else value
