"""Which raw column each feature of a matrix is made of, followed through the encoders of a graph."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.read.nodes import ancestors, name_of
from fairkit_onnx.structure.constants import constant_of
from fairkit_onnx.structure.ensemble import attributes_of
from fairkit_onnx.structure.operators import ARRANGES, EACH, PAIRS
from fairkit_onnx.structure.orders import Condition, conditions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    Places = NDArray[np.int64]

CONSTANT = -1

_JOINED = frozenset({"ReduceSum", "ReduceMax", "ReduceMin", "ArgMax"})


class Sources:
    """The raw columns behind every tensor of a graph's encoders."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        inputs: Mapping[str, Sequence[int]],
        tensor: str,
        run: Callable[[Sequence[str]], Mapping[str, Any]],
        *,
        finite: bool = False,
    ) -> None:
        """Follow the columns."""
        self._graph, self._finite = graph, finite
        self.of: dict[str, Places] = {name: np.array(columns, dtype=np.int64) for name, columns in inputs.items()}
        self.listed: set[int] = set()
        self.keys: dict[int, list[Any]] = {}
        self.conditions: list[tuple[Condition, Places]] = []
        nodes = ancestors(graph, [tensor])
        shapes = run([name for node in nodes for name in node.output if name])
        for node in nodes:
            self._follow(node, {name: np.asarray(value) for name, value in shapes.items()})

    def _follow(self, node: onnx.NodeProto, values: Mapping[str, NDArray[Any]]) -> None:
        told = [self.of.get(name) for name in node.input if name]
        if all(one is None for one in told):
            return  # made of constants
        traced = [one for one in told if one is not None]
        places = self._places(node, told, traced, values)
        if places is None:
            raise ModelError(
                f"the node {name_of(node)} before the score is not understood: encoders are read that make each "
                "feature from one column, such as OneHotEncoder, LabelEncoder, Scaler, Imputer, Cast and Concat"
            )
        moving = [name for name in node.input if name in self.of]
        conditions = conditions_of(node, moving, functools.partial(constant_of, self._graph))
        self.conditions += [(one, self.of[one.tensor]) for one in conditions or ()]
        if conditions is None:
            mine = [int(one) for one in np.unique(np.concatenate(traced)) if one >= 0]
            self.listed |= set(mine)
            if len(mine) == 1:  # also what a second encoder of the same text names
                known, more = self.keys.setdefault(mine[0], []), _keys_of(node)
                known += [key for key in more if not known or (isinstance(key, str) and isinstance(known[0], str))]
        for output, columns in zip(node.output, places, strict=False):
            self.of[output] = columns

    def _places(  # noqa: PLR0911 -- one for each kind of operator
        self,
        node: onnx.NodeProto,
        inputs: Sequence[Places | None],
        traced: Sequence[Places],
        values: Mapping[str, NDArray[Any]],
    ) -> list[Places] | None:
        kind = node.op_type
        width = _width(values[node.output[0]])
        if kind in EACH and len(traced[0]) == width:
            return [traced[0]]
        if kind in ("Concat", "FeatureVectorizer"):
            parts = [self._of(name, values) for name in node.input]
            return [np.concatenate(parts)] if sum(map(len, parts)) == width else None
        if kind == "OneHotEncoder":
            return [np.repeat(traced[0], width // len(traced[0]))]
        if kind in ARRANGES and len(traced[0]) == width:
            return [traced[0]]
        if kind in ("Gather", "ArrayFeatureExtractor"):
            at = constant_of(self._graph, node.input[1])
            axis = attributes_of(node).get("axis", 0) if kind == "Gather" else 1
            fits = at is not None and axis in (1, -1) and inputs[0] is not None
            return [traced[0][np.asarray(at, dtype=np.int64).reshape(-1)]] if fits else None
        if kind == "Split":
            ends = np.cumsum([_width(values[name]) for name in node.output])
            return list(np.split(traced[0], ends[:-1])) if ends[-1] == len(traced[0]) else None
        if kind == "Slice" and inputs[0] is not None:
            return self._sliced(node, traced[0], width)
        if kind == "Mul" and self._finite and any(self._is_zero(name) for name in node.input):
            return [np.full(width, CONSTANT, dtype=np.int64)]
        if kind in PAIRS:
            return _together(traced, width)
        if kind in _JOINED:
            return self._joined(node, traced[0], width)
        return None

    def _is_zero(self, name: str) -> bool:
        constant = constant_of(self._graph, name)
        return constant is not None and not constant.any()

    def _joined(self, node: onnx.NodeProto, columns: Places, width: int) -> list[Places] | None:
        """Columns of a row become one number: of one raw column, as where rare values share a code."""
        told = attributes_of(node)
        axes = told.get("axes", [told.get("axis", 0)])
        if len(node.input) > 1 and node.input[1]:
            constant = constant_of(self._graph, node.input[1])
            axes = [] if constant is None else constant.reshape(-1).tolist()
        behind = np.unique(columns[columns >= 0])
        along = list(axes) in ([1], [-1]) and width == 1 and len(behind) == 1
        return [behind] if along else None

    def _of(self, name: str, values: Mapping[str, NDArray[Any]]) -> Places:
        if name in self.of:
            return self.of[name]
        found = constant_of(self._graph, name)
        size = _width(values[name]) if found is None else found.reshape(-1).shape[0]
        return np.full(size, CONSTANT, dtype=np.int64)

    def _sliced(self, node: onnx.NodeProto, columns: Places, width: int) -> list[Places] | None:
        told = [constant_of(self._graph, name) for name in node.input[1:] if name]
        numbers = [[int(value) for value in one.reshape(-1)] for one in told if one is not None]
        if len(numbers) != len(node.input) - 1 or len(numbers) < 3 or numbers[2] not in ([1], [-1]):
            return None
        (start,), (end,) = numbers[:2]
        step = numbers[3][0] if len(numbers) > 3 else 1
        found = columns[slice(start, end, step)]
        return [found] if len(found) == width else None


def _together(known: Sequence[Places], width: int) -> list[Places] | None:
    """Columns side by side: each has one raw column behind it, or none."""
    origins = np.full(width, CONSTANT, dtype=np.int64)
    for one in known:
        if len(one) not in (1, width):
            return None
        wide = np.broadcast_to(one, (width,))
        if ((origins >= 0) & (wide >= 0) & (origins != wide)).any():
            return None
        origins = np.maximum(origins, wide)
    return [origins]


def _keys_of(node: onnx.NodeProto) -> list[Any]:
    """Return the values that an encoder names."""
    told = attributes_of(node)
    for name in ("keys_strings", "cats_strings", "keys_int64s", "cats_int64s", "keys_floats"):
        if told.get(name):
            return [key.decode("utf-8") if isinstance(key, bytes) else key for key in told[name]]
    return []


def _width(value: NDArray[Any]) -> int:
    return 1 if value.ndim < 2 else int(np.prod(value.shape[1:]))
