"""A scikit-learn pipeline as one ONNX file over the raw columns, whatever it ends in."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import same_value, value_text
from fairkit.errors import MissingExtraError, ModelError, ParameterError
from fairkit_onnx.session import open_session
from fairkit_onnx.write import histograms
from fairkit_onnx.write.encode import add_text_codes
from fairkit_onnx.write.estimators import add_estimator
from fairkit_onnx.write.export import PARITY, add_outputs, embed_settings
from fairkit_onnx.write.graph import ML_OPSET, OPSET, GraphBuilder, first_line
from fairkit_onnx.write.runtime import run_columns
from fairkit_repair.sklearn.base import written
from fairkit_repair.sklearn.columns import frame_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit_onnx.write.graph import ElementType

_CHECKED_ROWS = 4_096
_NAMES = {1: "float", 7: "int64", 8: "string"}


def to_onnx(pipeline: Any, X: Any, path: str | Path | None = None, *, favorable: Any = None) -> bytes:
    """Return a fitted pipeline, or a single estimator, as one ONNX file's bytes; each column of X is an input.

    The steps before the last are converted by skl2onnx. The last may be any estimator of `fairkit.mitigator`, a
    LightGBM, XGBoost or CatBoost model, or a scikit-learn one; HistGradientBoosting may read text columns itself. X may
    be a series or a list of texts, for a step such as TfidfVectorizer; words are cut by an operator of onnxruntime
    (domain ``com.microsoft``), which an audit has to allow (`fairkit_onnx.sandbox.limits.Limits`). The outputs are
    those of fairkit's own files: ``score``, ``decision_probability`` and ``decision``; ``probabilities`` with more
    classes than two; ``score`` alone in regression.

    Parameters
    ----------
    pipeline
        Fitted.
    X
        Rows as it was fitted on, shape [n, d] or [n]: their columns give the inputs' names and types, and on the first
        of them the file is compared with the pipeline.
    path
        Where to write the file besides.
    favorable
        Of two classes, the one that is good for the person: ``score`` and ``decision`` are about it. Default: the last
        one. The file says which it is, and an audit reads it.

    Raises
    ------
    ParameterError
        `favorable` is not a class of the last step, or there are not two classes.
    ModelError
        A step has no form in ONNX, or the file differs from the pipeline by more than 1e-5.
    MissingExtraError
        scikit-learn or skl2onnx is not installed.
    """
    steps = [step for _, step in getattr(pipeline, "steps", [("", pipeline)]) if step not in (None, "passthrough")]
    columns = frame_columns(X)
    if not steps or not columns:
        raise ParameterError("there is nothing to export: the pipeline has no steps, or X has no columns")
    *before, last = steps
    task = _task(last)
    ours = hasattr(last, "model_") and hasattr(last, "to_onnx")
    turned = _is_turned(last, task, favorable, ours=ours)
    if not before and ours:
        return bytes(last.to_onnx(path))
    kinds = {name: _kind(values) for name, values in columns.items()}
    # some converters mix double and single precision in one operator: then all numbers are single
    plain: dict[str, ElementType] = {name: "float" if kind == "double" else kind for name, kind in kinds.items()}
    for attempt, types in enumerate((kinds, plain)):
        try:
            proto = _graph(before, last, task, types, X, turned=turned)
            embed_settings(proto, _settings(last, task, list(columns), turned=turned))
            _check(proto, pipeline, X, columns, task, turned=turned)
        except ModelError:
            if attempt == 1 or types == plain:
                raise
        else:
            break
    return written(proto, path)


def _graph(
    before: Sequence[Any], last: Any, task: Task, kinds: Mapping[str, ElementType], X: Any, *, turned: bool
) -> onnx.ModelProto:
    """Return the whole graph, with inputs of these kinds."""
    graph = GraphBuilder()
    inputs = {name: graph.input(name, kind) for name, kind in kinds.items()}
    # histogram gradient boosting compares doubles; the other estimators take single precision
    double = type(last).__name__ in histograms.NAMES and "double" in kinds.values()
    if not before:
        matrix = _side_by_side(graph, last, inputs, kinds, double=double)
        _add_others(graph, last, matrix, len(inputs), task, turned=turned, double=double)
        return graph.build()
    matrix = _prepared(graph, before, kinds, inputs, double=double)
    if hasattr(last, "model_") and hasattr(last, "to_onnx"):
        _add_ours(graph, last, matrix)
    else:
        width = np.asarray(_transformed(before, X)).shape[1]
        _refuse_codes_of_texts(last)
        _add_others(graph, last, matrix, width, task, turned=turned, double=double)
    return graph.build()


def _is_turned(last: Any, task: Task, favorable: Any, *, ours: bool) -> bool:
    """Return whether the favorable class is the first of two."""
    if favorable is None:
        return False
    classes = list(getattr(last, "classes_", ()))
    if task != "binary":
        raise ParameterError(f"favorable={favorable!r} is for two classes, and the last step is for {task}")
    if not any(same_value(one, favorable) for one in classes):
        shown = " and ".join(value_text(one) for one in classes)
        raise ParameterError(f"favorable={favorable!r} is not a class of the last step; its classes are {shown}")
    turned = same_value(classes[0], favorable)
    if turned and ours:
        raise ParameterError("a method of fairkit has its favorable class from training: give `favorable` there")
    return turned


def _settings(last: Any, task: Task, features: list[str], *, turned: bool) -> dict[str, Any]:
    """Return the file's record of its data, as the files of `fairkit mitigate` have it."""
    classes = getattr(last, "classes_", ())
    classes = [value.item() if isinstance(value, np.generic) else value for value in classes]
    return {
        "schema": "fairkit.model/1",
        "label": "y",
        "favorable": classes[0 if turned else -1] if task == "binary" else None,
        "sensitive": [],
        "features": features,
        "task": task,
        "classes": classes,
    }


def _kind(values: NDArray[Any]) -> ElementType:
    if values.dtype.kind in "OUS":
        return "string"
    if values.dtype.kind in "iu":
        return "int64"
    # rounded to single precision before the encoders, a number may cross a tree's threshold
    return "double" if values.dtype == np.float64 else "float"


def _task(last: Any) -> Task:
    classes = getattr(last, "classes_", None)
    if classes is None or getattr(last, "_estimator_type", "") == "regressor":
        return "regression"
    return "binary" if len(classes) == 2 else "multiclass"


def _transformed(before: Sequence[Any], X: Any) -> Any:
    rows = X[:2]
    for step in before:
        rows = step.transform(rows)
    return rows.toarray() if hasattr(rows, "toarray") else rows


def _prepared(
    graph: GraphBuilder,
    before: Sequence[Any],
    kinds: Mapping[str, ElementType],
    inputs: Mapping[str, str],
    *,
    double: bool,
) -> str:
    """Add the steps before the last; return the name of what they give, shape [rows, d]."""
    try:
        from skl2onnx import convert_sklearn
        from skl2onnx.common import data_types

        from sklearn.pipeline import Pipeline
    except ImportError as error:
        raise MissingExtraError("skl2onnx", "sklearn") from error
    tensors = {
        "float": data_types.FloatTensorType,
        "double": data_types.DoubleTensorType,
        "int64": data_types.Int64TensorType,
        "string": data_types.StringTensorType,
    }
    types = [(name, tensors[kind]([None, 1])) for name, kind in kinds.items()]
    chain = Pipeline([(f"step{place}", step) for place, step in enumerate(before)])
    try:
        proto = convert_sklearn(
            chain, initial_types=types, target_opset={"": OPSET, "ai.onnx.ml": ML_OPSET}, options=_words(before) or None
        )
    except Exception as error:  # whatever a converter raises
        raise ModelError(_without_form(before, error)) from error
    declared = [entry.name for entry in proto.graph.input]
    if len(declared) != len(types):
        raise ModelError(
            f"the converter made {len(declared)} inputs of {len(types)} columns; give X without the columns that the "
            "pipeline does not read"
        )
    _set_locale(proto)
    # the converter changes names ("education-num" becomes "education_num") and keeps their order
    feeds = {entry: inputs[name] for entry, (name, _) in zip(declared, types, strict=True)}
    outputs = graph.inline(proto, feeds)
    return graph.cast(outputs[proto.graph.output[0].name], np.float64 if double else np.float32)


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
            kept = [attribute for attribute in node.attribute if attribute.name != "locale"]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute("locale", "C.UTF-8")])


def _without_form(before: Sequence[Any], error: Exception) -> str:
    """Say which of the steps before the last a converter refuses, and what to write instead."""
    names = [type(step).__name__ for step in _inner_steps(before)]
    reason = first_line(error)
    named = next((name for name in names if name in str(error)), None)
    return (
        f"the steps before the last have no form in ONNX{'' if named is None else f' ({named})'}: {reason}\n"
        "Apply such a step to the table first, export the pipeline without it, and give its columns as X; or write it "
        "with a transformer that skl2onnx converts (OneHotEncoder, StandardScaler, KBinsDiscretizer, ...), "
        "or register a converter with skl2onnx.update_registered_converter"
    )


def _inner_steps(steps: Sequence[Any]) -> list[Any]:
    """Return the steps, and those within pipelines, column transformers and unions."""
    inner_steps: list[Any] = []
    for step in steps:
        inner = [part[1] for name in ("steps", "transformers_", "transformer_list") for part in getattr(step, name, ())]
        inner_steps += _inner_steps(inner) if inner else [step]
    return inner_steps


def _side_by_side(
    graph: GraphBuilder, last: Any, inputs: Mapping[str, str], kinds: Mapping[str, ElementType], *, double: bool
) -> str:
    """Add the inputs as one matrix; texts become the codes of an estimator that has codes for them."""
    found = histograms.categories_of(last) if type(last).__name__ in histograms.NAMES else []
    codes = {one.column: one for one in found if one.is_text}
    dtype = np.float64 if double else np.float32
    parts = []
    for column, (name, kind) in enumerate(kinds.items()):
        if kind == "string" and column not in codes:
            raise ModelError(f"the estimator takes numbers, and the column {name!r} is text; put an encoder before it")
        value = inputs[name]
        if kind == "string":
            value = add_text_codes(graph, value, codes[column].texts)
        parts.append(graph.cast(value, dtype))
    return graph.node("Concat", parts, axis=1)


def _refuse_codes_of_texts(last: Any) -> None:
    """Refuse categories that are text behind other steps: between steps a graph has one matrix of numbers."""
    found = histograms.categories_of(last) if type(last).__name__ in histograms.NAMES else []
    if any(one.is_text for one in found):
        raise ModelError(
            f"the {type(last).__name__} reads text from the steps before it; put an OrdinalEncoder before it and name "
            "its columns by `categorical_features`, or give the estimator the raw columns"
        )


def _add_ours(graph: GraphBuilder, last: Any, matrix: str) -> None:
    """Add a method of fairkit: its file has an input for each column that it was fitted on."""
    import onnx

    proto = onnx.load_from_string(last.to_onnx())
    names = [str(name) for name in getattr(last, "feature_names_in_", [f"x{i}" for i in range(last.n_features_in_)])]
    feeds: dict[str, str] = {}
    for entry in proto.graph.input:
        if entry.name not in names:
            feeds[entry.name] = graph.input(entry.name, "float")
        else:
            place = graph.constant([names.index(entry.name)], np.int64)
            column = graph.node("Gather", [matrix, place], axis=1)
            feeds[entry.name] = graph.node("Cast", [column], to=entry.type.tensor_type.elem_type)
    given = graph.inline(proto, feeds)
    for output in proto.graph.output:
        kind: Any = _NAMES[output.type.tensor_type.elem_type]
        shape = output.type.tensor_type.shape.dim
        graph.output(output.name, given[output.name], kind, shape[1].dim_value or None)


def _add_others(
    graph: GraphBuilder, last: Any, matrix: str, width: int, task: Task, *, turned: bool, double: bool
) -> None:
    if type(last).__module__.partition(".")[0] == "catboost":
        scores = _add_catboost(graph, last, matrix, task)
    else:
        scores = add_estimator(graph, matrix, last, task, width=width, double=double)
    if turned:  # the probability of the first class
        scores = graph.node("Sub", [1.0, scores])
    add_outputs(graph, scores, task)


def _add_catboost(graph: GraphBuilder, model: Any, matrix: str, task: Task) -> str:
    """Add CatBoost's own graph, without the map that it makes of its probabilities."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        try:
            model.save_model(str(file), format="onnx")
        except Exception as error:  # CatBoost's own kind
            raise ModelError(f"CatBoost does not export this model: {first_line(error)}") from error
        proto = onnx.load(str(file))
    wanted = proto.graph.output[0].name
    for node in [node for node in proto.graph.node if node.op_type == "ZipMap"]:
        wanted = node.input[0]
        proto.graph.node.remove(node)
    del proto.graph.output[:]
    proto.graph.output.append(onnx.ValueInfoProto(name=wanted))
    scores = graph.inline(proto, {proto.graph.input[0].name: matrix})[wanted]
    if task == "binary":
        return graph.node("Gather", [scores, graph.constant([1], np.int64)], axis=1)
    return graph.reshape(scores, (-1, 1)) if task == "regression" else scores


def _check(
    proto: onnx.ModelProto, pipeline: Any, X: Any, columns: Mapping[str, NDArray[Any]], task: Task, *, turned: bool
) -> None:
    """Compare the file with the pipeline on the first rows."""
    rows = X[:_CHECKED_ROWS]
    try:
        session = open_session(proto)
        outputs = run_columns(session, {name: cells[:_CHECKED_ROWS] for name, cells in columns.items()})
    except Exception as error:  # onnxruntime's own kinds
        raise ModelError(f"onnxruntime does not run the exported file: {first_line(error)}") from error
    if task == "regression":
        expected = np.asarray(pipeline.predict(rows), dtype=np.float64)
        scale = max(1.0, float(np.abs(expected).max()))
    else:
        expected, scale = np.asarray(pipeline.predict_proba(rows), dtype=np.float64), 1.0
        expected = expected[:, 0 if turned else 1] if task == "binary" else expected
    got = outputs.get("score", outputs.get("probabilities"))
    assert got is not None  # noqa: S101 -- add_outputs declared one of them
    worst = float(np.abs(got.reshape(expected.shape) - expected).max()) / scale
    if not worst <= PARITY:
        raise ModelError(
            f"the exported file differs from the pipeline by up to {worst:.2g} (allowed: {PARITY:g}); nothing was "
            "written. A step that rounds, or that reads numbers as text, does so otherwise in ONNX; XGBoost takes the "
            "zeros of sparse matrices for missing values: let the encoders give dense ones (sparse_threshold=0)"
        )
