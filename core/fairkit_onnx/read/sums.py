"""How far float32 sums could move a tensor of a graph: sizes and errors, followed from the inputs node by node.

A sum of n products in any order lies within n 2⁻²⁴ Σ|wᵢ xᵢ| of the exact one, to first order (Higham 2002, eq. 3.5).
Operators that compute each number from one number round alike in every order, and add nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_onnx.read.nodes import ancestors, walk
from fairkit_onnx.read.safety import DOMAINS

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

UNIT = 2.0**-24
"""The unit roundoff of float32."""
CURVED = 1e-6
"""By how much the runtime's Sigmoid and Tanh may differ from the exact ones: three times what was measured (3.3e-7)."""
SIGMOID = 0.25
"""The steepest slope of a sigmoid."""
CLASSIFIERS = frozenset({"LinearClassifier", "TreeEnsembleClassifier"})
"""Operators with a label and the scores that it follows from."""
DENSE = frozenset({"MatMul", "Gemm", "BatchNormalization", "LinearClassifier", "LinearRegressor"})
"""Operators whose sums follow from weights and the sizes of their inputs."""
_SUMS = DENSE | frozenset(
    """AveragePool Conv ConvInteger CumSum Einsum GRU GlobalAveragePool LSTM LayerNormalization LpNormalization
    MatMulInteger Mean QLinearConv QLinearMatMul RNN ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceSum
    ReduceSumSquare SVMClassifier SVMRegressor Sum TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor""".split()  # noqa: SIM905
)
"""Operators that add numbers up, in an order of the runtime's."""
_SAME = frozenset({"Identity", "Cast", "Dropout", "Flatten", "ZipMap", "Neg", "Abs", "Relu"})
"""Operators after which a column is at most as large, and as far off, as before."""
_ARRANGED = frozenset(
    """ArrayFeatureExtractor Concat Expand FeatureVectorizer Gather Max Min ReduceMax ReduceMin Reshape Slice Split
    Squeeze Tile Transpose Unsqueeze Where""".split()  # noqa: SIM905 -- a list of names reads as one
)
"""Operators that pick among numbers."""
_EXACT = frozenset(
    """And Binarizer CastMap CategoryMapper Ceil ConstantOfShape Equal Exp Floor Greater GreaterOrEqual Imputer
    IsNaN LabelEncoder Less LessOrEqual Log Mod Not OneHot OneHotEncoder Or Pow Reciprocal Round Shape Sign Sqrt
    StringNormalizer TfIdfVectorizer Where Xor""".split()  # noqa: SIM905
)
"""Operators that compute each number from one number, or from whole ones: exact inputs give the same in every order."""
_FLAGS = frozenset(
    "And Binarizer Equal Greater GreaterOrEqual IsNaN Less LessOrEqual Not OneHotEncoder Or Sign Xor".split()  # noqa: SIM905
)
"""Operators whose numbers are at most 1."""
_SLOPES = {"Sigmoid": SIGMOID, "Tanh": 1.0, "Softmax": 0.5, "Erf": 1.13, "Softplus": 1.0, "Elu": 1.0}
"""The steepest slopes of functions; a softmax's is ½ where every number moves by so much at most."""


_MANY = 256
"""Columns of texts and categories; of more than so many nearly all are 0 in a row."""


class NotFollowedError(Exception):
    """An operator after which no bound is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Extent:
    """A tensor's largest absolute values and how far sums could move them, by its last axis's columns, or all alike.

    `wide` says that the columns are counted; else one number may stand for several. `norm` is the largest length of a
    row, as of texts' shares, most of which are 0.
    """

    largest: Array
    error: Array
    wide: bool = False
    norm: float = np.inf

    @property
    def exact(self) -> bool:
        """Whether every order gives the same numbers."""
        return not self.error.any()


def _extent(largest: float, error: float = 0.0) -> Extent:
    return Extent(np.array([largest]), np.array([error]))


class SumWalk:
    """Follows sizes and errors through the nodes that an output is made from."""

    def __init__(
        self,
        proto: onnx.ModelProto,
        output: str,
        trees: Callable[[onnx.NodeProto], float | None],
        deciding: Collection[str] = (),
    ) -> None:
        self._deciding = deciding
        self.decided: dict[str, float] = {}
        self._nodes = ancestors(proto.graph, [output])
        self._output = output
        self._tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
        for node in self._nodes:
            if node.op_type == "Constant":
                self._tensors.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
        self._values: dict[str, Array | None] = {}
        self._trees = {node.output[0]: trees(node) for node in self._nodes if node.op_type.startswith("TreeEnsemble")}
        self.dense = any(node.op_type in DENSE for node in self._nodes)
        self.summed = self.dense or bool(self._trees)
        self.adds = any(
            node.op_type in _SUMS or node.domain not in DOMAINS for node in walk(self._nodes)
        )  # a function's name says nothing of what it does

    def __call__(self, inputs: Mapping[str, NDArray[Any]]) -> float | None:
        """Return how far rounding could move the output on these rows; None where no bound is known."""
        known = {name: _of_input(values) for name, values in inputs.items()}
        self.decided.clear()
        try:
            for node in self._nodes:
                if node.op_type != "Constant":
                    known |= self._outputs(node, known)
            error = self._known(self._output, known).error.max(initial=0.0)
        except (NotFollowedError, ValueError, IndexError):  # or shapes that no runtime takes
            return None
        return float(error) if np.isfinite(error) else None

    def _outputs(self, node: onnx.NodeProto, known: Mapping[str, Extent]) -> dict[str, Extent]:
        """Return the extent of each output; a classifier's first one is its label, which its scores decide."""
        named = [name for name in node.output if name]
        if node.domain not in DOMAINS:  # a function, whatever it is called
            raise NotFollowedError
        if node.op_type in self._deciding and node.op_type not in CLASSIFIERS:
            errors = [self._known(name, known).error.max(initial=0.0) for name in node.input if name]
            if any(errors):
                self.decided[named[0]] = float(sum(errors))
                return dict.fromkeys(named, _extent(np.inf))
        made = self._after(node, known)
        extents = dict.fromkeys(named, made)
        if node.op_type in self._deciding and not made.exact:
            self.decided[node.output[0]] = float(made.error.max())
            extents[node.output[0]] = _extent(np.inf)
        return extents

    def _constant(self, name: str) -> Array | None:
        """Return a constant's numbers; None for texts, for data in other files and for what is no constant."""
        from onnx import numpy_helper

        if name not in self._values:
            tensor = self._tensors.get(name)
            usable = tensor is not None and tensor.data_location != 1 and tensor.data_type not in (0, 8)
            self._values[name] = numpy_helper.to_array(tensor).astype(np.float64) if usable else None  # type: ignore[arg-type]
        return self._values[name]

    def _known(self, name: str, known: Mapping[str, Extent]) -> Extent:
        if name in known:
            return known[name]
        values = self._constant(name)
        if values is None or not values.size:
            return _extent(np.inf)
        size = np.abs(values).reshape(-1, values.shape[-1] if values.ndim else 1).max(axis=0)
        return Extent(size, np.zeros(len(size)), wide=True)

    def _after(self, node: onnx.NodeProto, known: Mapping[str, Extent]) -> Extent:
        kind, some = node.op_type, [self._known(name, known) for name in node.input if name]
        exact = all(one.exact for one in some)
        if node.op_type.startswith("TreeEnsemble"):
            far = self._trees[node.output[0]]
            if far is None or not exact:  # a split could fall otherwise
                raise NotFollowedError
            return _extent(np.inf, far)
        if kind in _EXACT and exact:
            return _extent(self._exact_size(node, some))
        rules: dict[str, Callable[[onnx.NodeProto, Sequence[Extent]], Extent]] = {
            **dict.fromkeys(DENSE, self._dense),
            **dict.fromkeys(("Add", "Sub", "Sum"), _added),
            **dict.fromkeys(("Mul", "Div"), self._scaled),
            **dict.fromkeys(_SLOPES, _curved),
            **dict.fromkeys(_SAME, _cast),
            **dict.fromkeys(_ARRANGED, _arranged),
            "Scaler": _rescaled,
            "Normalizer": _normed,
            "LeakyRelu": _leaked,
            "Clip": _clipped,
        }
        if kind not in rules or any(attribute.HasField("g") for attribute in node.attribute):
            raise NotFollowedError
        return rules[kind](node, some)

    def _exact_size(self, node: onnx.NodeProto, some: Sequence[Extent]) -> float:
        """Return how large numbers can be after an operator that computes each from one."""
        largest = max((float(one.largest.max(initial=0.0)) for one in some), default=np.inf)
        if node.op_type in ("Where", "Imputer", "Floor", "Ceil", "Round"):
            given = [x for a in node.attribute if a.name.startswith("imputed") for x in (*a.floats, *a.ints)]
            return max([largest + 1, *map(abs, given)])
        if node.op_type == "LabelEncoder":
            values = [a for a in node.attribute if a.name in ("values_floats", "values_int64s")]
            default = [a.f if a.name == "default_float" else a.i for a in node.attribute if "default" in a.name]
            numbers = [abs(float(x)) for a in values for x in (*a.floats, *a.ints)]
            return max([*numbers, *map(abs, default)]) if numbers else np.inf
        return 1.0 if node.op_type in _FLAGS else np.inf

    def _dense(self, node: onnx.NodeProto, some: Sequence[Extent]) -> Extent:
        told = {attribute.name: attribute for attribute in node.attribute}
        if node.op_type == "BatchNormalization":
            scale, bias, mean, variance = (self._constant(name) for name in node.input[1:5])
            if scale is None or bias is None or mean is None or variance is None:
                raise NotFollowedError
            factor = np.abs(scale) / np.sqrt(variance + (told["epsilon"].f if "epsilon" in told else 1e-5))
            size = factor * (some[0].largest + np.abs(mean)) + np.abs(bias)
            return Extent(size, factor * some[0].error + 4 * UNIT * size, wide=True)  # it may be merged with a product
        weights, base, slope = self._weights(node, told)
        return _product(some[0], weights, base, slope)

    def _weights(self, node: onnx.NodeProto, told: Mapping[str, Any]) -> tuple[Array, Array, float]:
        """Return absolute weights, shape [inputs, outputs], absolute constants, and the slope of the node's link."""
        if node.op_type in ("LinearClassifier", "LinearRegressor"):
            base = np.abs(np.array(told["intercepts"].floats if "intercepts" in told else [0.0], dtype=np.float64))
            rows = max(len(base), told["targets"].i if "targets" in told else 1)
            link = told["post_transform"].s if "post_transform" in told else b"NONE"
            slopes = {b"NONE": 1.0, b"LOGISTIC": SIGMOID, b"SOFTMAX": 0.5}
            weights = np.abs(np.array(told["coefficients"].floats, dtype=np.float64))
            if link not in slopes or len(weights) % rows:
                raise NotFollowedError
            return weights.reshape(rows, -1).T, base, slopes[link]
        matrix = self._constant(node.input[1])
        if matrix is None or matrix.ndim != 2 or ("transA" in told and told["transA"].i):
            raise NotFollowedError
        matrix = np.abs(matrix.T if "transB" in told and told["transB"].i else matrix)
        base = np.zeros(1)
        if node.op_type == "Gemm":
            matrix = matrix * abs(told["alpha"].f if "alpha" in told else 1.0)
            if len(node.input) > 2 and node.input[2]:
                bias = self._constant(node.input[2])
                if bias is None:
                    raise NotFollowedError
                base = np.abs(bias).reshape(-1) * abs(told["beta"].f if "beta" in told else 1.0)
        return matrix, base, 1.0

    def _scaled(self, node: onnx.NodeProto, some: Sequence[Extent]) -> Extent:
        left, right = some
        if node.op_type == "Mul":
            with np.errstate(invalid="ignore"):
                size = np.nan_to_num(left.largest * right.largest, nan=np.inf, posinf=np.inf)
                error = np.where(left.error > 0, left.error * (right.largest + right.error), 0.0)
                error = error + np.where(right.error > 0, right.error * left.largest, 0.0)
            shape = np.broadcast(size, error).shape
            return Extent(np.broadcast_to(size, shape), np.broadcast_to(error, shape), wide=_wide(some))
        divisor = self._constant(node.input[1])
        if divisor is None or not divisor.all():
            if left.exact and right.exact:
                return _extent(np.inf)
            raise NotFollowedError
        least = np.abs(divisor).min()
        return Extent(left.largest / least, left.error / least, wide=left.wide)


def largest_row(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
    """Return the largest absolute numbers of inputs as one row of each, without texts: its bound holds for all rows."""
    numbers = {name: values for name, values in arrays.items() if values.dtype.kind in "fiub"}
    return {name: _sizes(values).reshape(1, *values.shape[1:]) for name, values in numbers.items()}


def _sizes(values: NDArray[Any]) -> Array:
    if not len(values):
        return np.zeros(int(np.prod(values.shape[1:])))
    numbers = values.reshape(len(values), -1)
    size = np.maximum(numbers.max(axis=0).astype(np.float64), -numbers.min(axis=0).astype(np.float64))
    if np.isfinite(size).all():
        return np.asarray(size)
    finite = np.isfinite(numbers)  # others give no number
    return np.asarray(np.abs(numbers.astype(np.float64)).max(axis=0, initial=0.0, where=finite))


def _of_input(values: NDArray[Any]) -> Extent:
    if values.dtype.kind not in "fiub":
        return _extent(np.inf)
    size = _sizes(values)
    size = size if values.ndim <= 2 else size.max(keepdims=True)
    return Extent(size, np.zeros(len(size)), wide=values.ndim <= 2)


def _product(before: Extent, weights: Array, base: Array, slope: float) -> Extent:
    """Return the extent of sums of products; a column that may be of any size makes the error unbounded."""
    count = len(weights)
    size, error = (np.broadcast_to(x, count) if len(x) == 1 else x for x in (before.largest, before.error))
    if len(size) != count or len(error) != count:
        raise NotFollowedError
    if not before.wide and count > _MANY and np.isinf(before.norm):
        raise NotFollowedError  # most of so many are 0, which is not known: the bound would say nothing
    used = weights.any(axis=1)
    total = np.where(used, size, 0.0) @ weights
    if np.isfinite(before.norm):  # Cauchy and Schwarz
        total = np.minimum(total, before.norm * np.sqrt((weights**2).sum(axis=0)))
    total = total + base
    far = np.where(used, error, 0.0) @ weights + (count + 1) * UNIT * (total + np.where(used, error, 0.0) @ weights)
    return Extent(np.ones(len(far)) if slope < 1 else total, far * slope, wide=True)


def _wide(some: Sequence[Extent]) -> bool:
    """Tell whether the columns of what is broadcast together are counted."""
    return all(one.wide for one in some) or any(one.wide and len(one.largest) > 1 for one in some)


def _added(_node: onnx.NodeProto, some: Sequence[Extent]) -> Extent:
    try:
        size, error = sum(one.largest for one in some), sum(one.error for one in some)
    except ValueError:
        raise NotFollowedError from None
    if len(some) > 2:  # of more than two the order matters
        error = error + len(some) * UNIT * np.asarray(size)
    return Extent(np.asarray(size), np.asarray(error), wide=_wide(some))


def _curved(node: onnx.NodeProto, some: Sequence[Extent]) -> Extent:
    kind, before = node.op_type, some[0]
    slope = _SLOPES[kind]
    error = before.error.max(keepdims=True) if kind == "Softmax" else before.error
    far = slope * error
    if np.isfinite(before.largest).all():  # other programs round these functions otherwise
        far = far + CURVED
    size = before.largest + 1 if kind in ("Softplus", "Elu") else np.ones(len(far))
    return Extent(size, far, wide=before.wide and kind != "Softmax")


def _rescaled(node: onnx.NodeProto, some: Sequence[Extent]) -> Extent:
    told = {attribute.name: np.abs(np.array(attribute.floats)) for attribute in node.attribute}
    offset, scale = told.get("offset", np.zeros(1)), told.get("scale", np.ones(1))
    try:
        return Extent((some[0].largest + offset) * scale, some[0].error * scale, wide=some[0].wide)
    except ValueError:
        raise NotFollowedError from None


def _normed(_node: onnx.NodeProto, some: Sequence[Extent]) -> Extent:
    """Return shares of a sum: of numbers that are off, which sum to 1 but for rounding, or of exact ones."""
    before = some[0]
    if not before.exact:
        return Extent(np.ones(1), 2.0 * before.error)
    return Extent(np.ones(len(before.largest)), np.zeros(1), wide=before.wide, norm=1.0)


def _leaked(node: onnx.NodeProto, some: Sequence[Extent]) -> Extent:
    slope = max([1.0, *(abs(a.f) for a in node.attribute if a.name == "alpha")])
    return Extent(slope * some[0].largest, slope * some[0].error, wide=some[0].wide)


def _clipped(node: onnx.NodeProto, some: Sequence[Extent]) -> Extent:
    ends = [abs(a.f) for a in node.attribute if a.name in ("min", "max")]
    ends += [float(one.largest.max(initial=0.0)) for one in some[1:]]
    return Extent(np.maximum(some[0].largest, max(ends, default=0.0)), some[0].error, wide=some[0].wide)


def _cast(node: onnx.NodeProto, some: Sequence[Extent]) -> Extent:
    whole = next((a.i for a in node.attribute if a.name == "to"), 1) not in (1, 10, 11, 16)
    if node.op_type == "Cast" and whole and not some[0].exact:
        raise NotFollowedError
    return some[0]


def _arranged(node: onnx.NodeProto, some: Sequence[Extent]) -> Extent:
    """Return the extent of picked numbers: by column where columns are joined, else the largest of all."""
    if node.op_type in ("Concat", "FeatureVectorizer"):
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        if axis in (1, -1) and all(one.wide for one in some):
            pairs = [np.broadcast_arrays(one.largest, one.error) for one in some]
            sizes, errors = zip(*pairs, strict=True)
            return Extent(np.concatenate(sizes), np.concatenate(errors), wide=True)
    every = node.op_type in ("Concat", "FeatureVectorizer", "Max", "Min")
    picked = some if every else some[1:] if node.op_type == "Where" else some[:1]
    if node.op_type == "Where" and not some[0].exact:
        raise NotFollowedError  # which of the two depends on a sum
    if not every and node.op_type != "Where" and not all(one.exact for one in some[1:]):
        raise NotFollowedError  # the places depend on a sum
    largest = max(float(one.largest.max(initial=0.0)) for one in picked)
    error = max(float(one.error.max(initial=0.0)) for one in picked)
    norm = picked[0].norm if node.op_type in ("Reshape", "Squeeze", "Unsqueeze") else np.inf
    return Extent(np.array([largest]), np.array([error]), norm=norm)
