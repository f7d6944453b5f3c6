"""scikit-learn's transformers in a graph: by skl2onnx, with an imputer of our own."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import MissingExtraError, ModelError
from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.file import open_session
from fairkit_onnx.write import estimators as histograms
from fairkit_onnx.write.encode import absent, add_text_codes
from fairkit_onnx.write.graph import ML_OPSET, OPSET, first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx

    from fairkit_onnx.write.graph import ElementType, GraphBuilder


@dataclass(frozen=True, slots=True)
class StepInput:
    """Where the rows stand in a graph: raw columns, or one matrix of single (or double) numbers."""

    rows: Any  # some of them, as the next step takes them
    inputs: Mapping[str, str]
    kinds: Mapping[str, ElementType]
    width: int | None = None  # of the matrix; None: raw columns


def add_transformers(
    graph: GraphBuilder, before: Sequence[Any], source: StepInput, *, double: bool = False
) -> StepInput:
    """Add the steps before the last; return the matrix that they give."""
    try:
        from skl2onnx import convert_sklearn
        from skl2onnx.common import data_types
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import Pipeline
    except ImportError as error:
        raise MissingExtraError("skl2onnx", "sklearn") from error
    rows = source.rows
    for step in before:
        rows = step.transform(rows)
    kind: ElementType = "double" if double else "float"
    width = int(rows.shape[1])
    tensors = {
        "float": data_types.FloatTensorType,
        "double": data_types.DoubleTensorType,
        "int64": data_types.Int64TensorType,
        "string": data_types.StringTensorType,
    }
    types = [(name, tensors[kind]([None, source.width or 1])) for name, kind in source.kinds.items()]
    chain = Pipeline([(f"step{index}", _for_files(step)) for index, step in enumerate(before)])
    try:
        proto = convert_sklearn(
            chain,
            initial_types=types,
            target_opset={"": OPSET, "ai.onnx.ml": ML_OPSET},
            options=_words([step for _, step in chain.steps]) or None,
            custom_conversion_functions={SimpleImputer: _convert_imputer},
            custom_shape_calculators={SimpleImputer: _declare_imputer},
        )
    except Exception as error:  # whatever a converter raises
        raise ModelError(f"has no form in ONNX: {first_line(error)}") from error
    declared = [entry.name for entry in proto.graph.input]
    if len(declared) != len(types):
        raise ModelError(
            f"the converter made {len(declared)} inputs of {len(types)} columns; give X without the columns that the "
            "pipeline does not read"
        )
    _set_locale(proto)
    # the converter changes names ("education-num" becomes "education_num") and keeps their order
    feeds = {entry: source.inputs[name] for entry, (name, _) in zip(declared, types, strict=True)}
    outputs = graph.inline(proto, feeds)
    matrix = graph.cast(outputs[proto.graph.output[0].name], np.float64 if double else np.float32)
    return StepInput(rows, {"X": matrix}, {"X": kind}, width)


def side_by_side(graph: GraphBuilder, last: Any, source: StepInput, *, double: bool) -> str:
    """Add the inputs as one matrix; texts become the codes of an estimator that has codes for them."""
    categories = histograms.categories_of(last) if type(last).__name__ in histograms.NAMES else []
    codes = {category.column: category for category in categories if category.is_text}
    dtype = np.float64 if double else np.float32
    parts = []
    for column, (name, kind) in enumerate(source.kinds.items()):
        if kind == "string" and column not in codes:
            raise ModelError(f"the estimator takes numbers, and the column {name!r} is text; put an encoder before it")
        value = source.inputs[name]
        if kind == "string":
            value = add_text_codes(graph, value, codes[column].texts)
        parts.append(graph.cast(value, dtype))
    return graph.node("Concat", parts, axis=1)


def refuse_codes_of_texts(last: Any) -> None:
    """Refuse categories that are text behind other steps: between steps a graph has one matrix of numbers."""
    categories = histograms.categories_of(last) if type(last).__name__ in histograms.NAMES else []
    if any(category.is_text for category in categories):
        raise ModelError(
            f"the {type(last).__name__} reads text from the steps before it; put an OrdinalEncoder before it and name "
            "its columns by `categorical_features`, or give the estimator the raw columns"
        )


def _for_files(step: Any) -> Any:
    """Return a step as a converter takes it: dense, and with empty text where a category is missing, as in files."""
    inner = _inner_steps([step])
    odd = [
        step for step in inner if any(map(absent, np.concatenate([*getattr(step, "categories_", ()), [0]]).tolist()))
    ]
    sparse = [step for step in inner if getattr(step, "encode", "") == "onehot"]
    if not odd and not sparse:
        return step
    step = deepcopy(step)
    for inner_step in _inner_steps([step]):
        if getattr(inner_step, "encode", "") == "onehot":
            inner_step.encode = "onehot-dense"
        if hasattr(inner_step, "categories_"):
            inner_step.categories_ = [
                np.array(["" if absent(value) else value for value in old], old.dtype) if old.dtype.kind == "O" else old
                for old in inner_step.categories_
            ]
    return step


_WORDS, _RE2_WORDS = r"(?u)\b\w\w+\b", r"[\p{L}\p{N}_]{2,}"
"""scikit-learn's default pattern of a word, and the same in onnxruntime's syntax (the converter's is for ASCII)."""


def _words(before: Sequence[Any]) -> dict[int, dict[str, Any]]:
    """Return the options by which words are cut as scikit-learn cuts them."""
    return {
        id(step): {"tokenexp": _RE2_WORDS}
        for step in _inner_steps(before)
        if getattr(step, "token_pattern", None) == _WORDS and getattr(step, "analyzer", "") == "word"
    }


def _set_locale(proto: onnx.ModelProto) -> None:
    """Let texts become lower case in a locale that this machine has: slim images lack en_US.UTF-8, the default."""
    from onnx import helper

    normalizers = [node for node in proto.graph.node if node.op_type == "StringNormalizer"]
    if not normalizers:
        return
    try:
        open_session(proto)
    except Exception as error:  # onnxruntime's own kinds
        if "locale" not in str(error):
            return  # the comparison with the pipeline says what it is
        for node in normalizers:
            attributes = [attribute for attribute in node.attribute if attribute.name != "locale"]
            del node.attribute[:]
            node.attribute.extend([*attributes, helper.make_attribute("locale", "C.UTF-8")])


def _inner_steps(steps: Sequence[Any]) -> list[Any]:
    """Return the steps, and those within pipelines, column transformers and unions."""
    inner_steps: list[Any] = []
    for step in steps:
        inner = [part[1] for name in ("steps", "transformers_", "transformer_list") for part in getattr(step, name, ())]
        inner_steps += _inner_steps(inner) if inner else [step]
    return inner_steps


def _kept(model: Any) -> list[int]:
    """Return the columns that an imputer keeps: those with a value, unless it keeps empty ones."""
    if model.keep_empty_features or model.statistics_.dtype.kind not in "fiu":
        return list(range(len(model.statistics_)))
    return np.flatnonzero(~np.isnan(model.statistics_)).tolist()


def _declare_imputer(operator: Any) -> None:
    """Declare the output: texts, or numbers of double precision unless all inputs are single."""
    from skl2onnx.common import data_types

    model, kinds = operator.raw_operator, {type(entry.type) for entry in operator.inputs}
    text, single = data_types.StringTensorType, data_types.FloatTensorType
    if text in kinds and len(kinds) > 1:
        raise RuntimeError("a SimpleImputer over texts and numbers together; give each kind one of its own")
    more = len(model.indicator_.features_) if model.add_indicator else 0
    if text in kinds and more:
        raise RuntimeError("add_indicator=True beside texts")
    form = next(iter(kinds)) if kinds in ({text}, {single}) else data_types.DoubleTensorType
    operator.outputs[0].type = form([None, len(_kept(model)) + more])


def _convert_imputer(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes: a missing value becomes its column's statistic; a file's missing text is empty."""
    from onnx import TensorProto, numpy_helper
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    model, output = operator.raw_operator, operator.outputs[0]
    text = isinstance(output.type, StringTensorType)
    dtype: Any = object if text else np.float32 if isinstance(output.type, FloatTensorType) else np.float64
    kind = TensorProto.FLOAT if dtype is np.float32 else TensorProto.DOUBLE

    def node(op: str, inputs: list[str], **how: Any) -> str:
        name = scope.get_unique_variable_name("imputed")
        container.add_node(op, inputs, [name], name=scope.get_unique_operator_name(op), **how)
        return str(name)

    def constant(values: Any) -> str:
        name = scope.get_unique_variable_name("constant")
        array = np.asarray(values)
        if array.dtype.kind == "O":
            texts = [str(value).encode() for value in array.ravel()]
            container.add_initializer(name, TensorProto.STRING, array.shape, texts)
        else:
            container.add_initializer(name, None, None, numpy_helper.from_array(array, name))
        return str(name)

    cells = [entry.full_name if text else node("Cast", [entry.full_name], to=kind) for entry in operator.inputs]
    matrix = cells[0] if len(cells) == 1 else node("Concat", cells, axis=1)
    sentinel = model.missing_values
    if text:
        keys = {"keys_strings": [sentinel if isinstance(sentinel, str) else ""], "values_int64s": [1]}
        encoded = node("LabelEncoder", [matrix], op_domain="ai.onnx.ml", op_version=2, default_int64=0, **keys)
        missing = node("Cast", [encoded], to=TensorProto.BOOL)
    elif sentinel is None or sentinel != sentinel:  # noqa: PLR0124 -- NaN
        missing = node("IsNaN", [matrix])
    else:
        missing = node("Equal", [matrix, constant(np.array([[sentinel]], dtype))])
    values = np.array([model.statistics_], dtype)
    filled = node("Gather", [node("Where", [missing, constant(values), matrix]), constant(_kept(model))], axis=1)
    if model.add_indicator:
        indicators = node("Gather", [missing, constant(model.indicator_.features_)], axis=1)
        filled = node("Concat", [filled, node("Cast", [indicators], to=kind)], axis=1)
    container.add_node("Identity", [filled], [output.full_name], name=scope.get_unique_operator_name("Identity"))
