"""A scikit-learn pipeline as one ONNX file over the raw columns, whatever it ends in, deciding as its predict does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.data.roles import same_value, value_text
from fairkit.errors import ModelError, ParameterError
from fairkit.models.python import took_a_matrix
from fairkit.support.calls import checked, named_class
from fairkit_onnx.file import open_session
from fairkit_onnx.write import estimators as histograms
from fairkit_onnx.write.estimators import add_estimator, add_sklearn
from fairkit_onnx.write.export import PARITY, add_outputs, embed_settings, run_columns
from fairkit_onnx.write.graph import GraphBuilder, first_line
from fairkit_onnx.write.transformers import StepInput, add_transformers, refuse_codes_of_texts, side_by_side
from fairkit_repair.sklearn.base import written
from fairkit_repair.sklearn.post import frame_columns

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit_onnx.write.graph import ElementType

_CHECKED_ROWS = 4_096
_NAMES = {1: "float", 7: "int64", 8: "string"}
_AROUND = ("TunedThresholdClassifierCV", "FixedThresholdClassifier", "SelfTrainingClassifier", "FrozenEstimator")
"""Estimators around a fitted one, ``estimator_`` or ``estimator``; the first two decide by a threshold of their own."""


class _Rule(NamedTuple):
    """How ``predict`` decides for the second of two classes: where its score reaches a threshold, or exceeds it."""

    threshold: float = 0.5
    reached: bool = False
    margin: bool = False  # whether the score is decision_function's

    @property
    def turned(self) -> _Rule:
        """The same rule, said of the first class's score: p < t there is 1 - p > 1 - t."""
        return _Rule(-self.threshold if self.margin else 1 - self.threshold, not self.reached, self.margin)

    def decided(self, graph: GraphBuilder, scores: str) -> str:
        """Add the decision; above t is from the next single number on."""
        limit = np.float32(self.threshold)
        return graph.node("GreaterOrEqual", [scores, float(limit if self.reached else np.nextafter(limit, np.inf))])


@checked
def to_onnx(pipeline: Any, X: Any, path: str | Path | None = None, *, favorable: Any = None) -> bytes:
    """Return a fitted pipeline, or a single estimator, as one ONNX file's bytes; each column of X is an input.

    The steps before the last are converted by skl2onnx. The last may be any estimator of `fairkit.mitigator`, a
    LightGBM, XGBoost or CatBoost model, or a scikit-learn one; HistGradientBoosting may read text columns itself.
    Searches, threshold classifiers and soft votes are opened, and ``decision`` is what ``predict`` says. X may be a
    series or a list of texts, for a step such as TfidfVectorizer; words are cut by an operator of onnxruntime
    (domain ``com.microsoft``), which an audit has to allow (`fairkit_onnx.sandbox.confine.Limits`). The outputs are
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
        A step has no form in ONNX, the file differs from the pipeline by more than 1e-5, or it decides otherwise than
        `predict`; the message names the first such step.
    MissingExtraError
        scikit-learn or skl2onnx is not installed.
    """
    if isinstance(pipeline, type) or not hasattr(pipeline, "predict"):
        raise ParameterError(f"{named_class(pipeline)} is no fitted estimator: give an object with predict")
    steps, rule = _opened(pipeline)
    columns = frame_columns(X)
    if not steps or not columns:
        raise ParameterError("there is nothing to export: the pipeline has no steps, or X has no columns")
    last = steps[-1]
    if took_a_matrix(pipeline) and hasattr(X, "to_numpy"):
        X = X.to_numpy()
    _refuse_targets(pipeline, last, X)
    task = _task(last)
    ours = hasattr(last, "model_") and hasattr(last, "to_onnx")
    turned = _is_turned(last, task, favorable, ours=ours)
    if len(steps) == 1 and ours and rule is None:
        return bytes(last.to_onnx(path))
    if not ours:
        rule = rule or _own_rule(last, task)
    kinds = {name: _kind(values) for name, values in columns.items()}
    for types in _types(kinds, alone=len(steps) == 1 and not hasattr(last, "voting")):
        try:
            proto = _graph(steps, task, types, X, rule, turned=turned)
            embed_settings(proto, _settings(last, task, list(columns), turned=turned))
            _check(proto, pipeline, steps, X, columns, task, rule, turned=turned)
        except ModelError as error:
            failed = error
        else:
            return written(proto, path)
    raise ModelError(f"{_culprit(steps, X, kinds, failed)}; nothing was written")


def _opened(model: Any, rule: _Rule | None = None) -> tuple[list[Any], _Rule | None]:
    """Return the steps inside pipelines, searches and threshold classifiers, and the rule of the outermost of these."""
    if hasattr(model, "steps"):
        steps = [step for _, step in model.steps if step not in (None, "passthrough")]
        inner, rule = _opened(steps[-1], rule) if steps else ([], rule)
        return [*steps[:-1], *inner], rule
    if hasattr(model, "best_estimator_"):
        return _opened(model.best_estimator_, rule)
    kind = type(model).__name__
    if kind not in _AROUND:
        return [model], rule
    inside = model.estimator_ if hasattr(model, "estimator_") else model.estimator
    if kind in _AROUND[:2] and rule is None:
        rule = _threshold_rule(model, inside)
    return _opened(inside, rule)


def _threshold_rule(model: Any, inside: Any) -> _Rule:
    margin = model.response_method == "decision_function" or not hasattr(inside, "predict_proba")
    threshold = model.best_threshold_ if hasattr(model, "best_threshold_") else model.threshold
    threshold = (0.0 if margin else 0.5) if threshold == "auto" else float(threshold)
    scorer = getattr(model, "_curve_scorer", None)
    about = model.pos_label if scorer is None else scorer._get_pos_label()
    rule = _Rule(threshold, reached=True, margin=margin)
    return rule.turned if about is not None and same_value(about, model.classes_[0]) else rule


def _own_rule(last: Any, task: Task) -> _Rule | None:
    """Return how an estimator decides by itself: for the second class where it is more probable than the threshold."""
    if task == "regression" or hasattr(last, "predict_proba"):
        threshold_of = getattr(last, "get_probability_threshold", None)  # CatBoost's
        return _Rule(0.5 if threshold_of is None or task != "binary" else float(threshold_of()))
    if task == "binary" and hasattr(last, "decision_function"):
        return _Rule(0.0, margin=True)
    way = "voting='soft'" if hasattr(last, "voting") else "CalibratedClassifierCV around it"
    raise ModelError(f"a {type(last).__name__} gives no probabilities, and a file has scores: fit it with {way}")


def _refuse_targets(pipeline: Any, last: Any, X: Any) -> None:
    """Refuse a model of several targets."""
    said: NDArray[Any] = np.empty(0)
    with suppress(ValueError):  # rows that the model does not take are told of below
        said = np.asarray(pipeline.predict(X[:2]))
    if said.ndim > 1 and said.shape[1] > 1:
        named = f"a {type(last).__name__} that predicts {said.shape[1]} targets for each row"
        raise ModelError(f"{named} has no file: a file is about one; fit and export a model for each")


def _types(kinds: Mapping[str, ElementType], *, alone: bool) -> list[Mapping[str, ElementType]]:
    """Return the inputs' types to try, in order.

    Some converters refuse whole numbers beside fractions, or compute with whole ones in single precision: then all are
    doubles. Others mix double and single precision in one operator: then all numbers are single.
    """
    double: dict[str, ElementType] = {name: "double" if kind == "int64" else kind for name, kind in kinds.items()}
    single: dict[str, ElementType] = {name: "float" if kind == "double" else kind for name, kind in double.items()}
    kinds_tried = [kinds, single] if alone else [double, kinds, single]
    return [types for index, types in enumerate(kinds_tried) if types not in kinds_tried[:index]]


def _graph(
    steps: Sequence[Any], task: Task, kinds: Mapping[str, ElementType], X: Any, rule: _Rule | None, *, turned: bool
) -> onnx.ModelProto:
    """Return the whole graph, with inputs of these kinds."""
    graph, last = GraphBuilder(), steps[-1]
    source = _source(graph, steps, X, kinds)
    if hasattr(last, "model_") and hasattr(last, "to_onnx"):
        _add_ours(graph, last, add_transformers(graph, steps[:-1], source).inputs["X"], rule, turned=turned)
        return graph.build()
    scores, decided = _scores(graph, steps, source, task, rule)
    _declare(graph, scores, decided, task, rule, turned=turned)
    return graph.build()


def _source(graph: GraphBuilder, steps: Sequence[Any], X: Any, kinds: Mapping[str, ElementType]) -> StepInput:
    """Declare the inputs; numbers alone before a step that names no columns are one matrix, as converters like it."""
    inputs = {name: graph.input(name, kind) for name, kind in kinds.items()}
    named = any(hasattr(steps[0], name) for name in ("transformers_", "transformer_list", "steps", "estimators_"))
    if len(steps) == 1 or named or "string" in kinds.values():
        return StepInput(X[:2], inputs, kinds)
    kind: ElementType = "float" if set(kinds.values()) == {"float"} else "double"
    parts = [graph.cast(value, np.float32 if kind == "float" else np.float64) for value in inputs.values()]
    return StepInput(X[:2], {"X": graph.node("Concat", parts, axis=1)}, {"X": kind}, len(parts))


def _declare(
    graph: GraphBuilder, scores: str, decided: str | None, task: Task, rule: _Rule | None, *, turned: bool
) -> None:
    """Declare the outputs; `decided` is for the second class, and of turned ones the first is favorable."""
    if task == "binary" and rule is not None:
        decided = decided or rule.decided(graph, scores)
        if turned:
            scores = graph.node("Neg", [scores]) if rule.margin else graph.node("Sub", [1.0, scores])
            decided = graph.node("Not", [decided])
    add_outputs(graph, scores, task, decided=decided)


def _scores(
    graph: GraphBuilder, steps: Sequence[Any], source: StepInput, task: Task, rule: _Rule | None
) -> tuple[str, str | None]:
    """Add steps; return the scores, and the decision where it is not made from them."""
    *before, last = steps
    # histogram gradient boosting compares doubles; the other estimators take single precision
    double = type(last).__name__ in histograms.NAMES and "double" in source.kinds.values()
    if before:
        source = add_transformers(graph, before, source, double=double)
        refuse_codes_of_texts(last)
    if type(last).__name__.startswith("Voting") and getattr(last, "voting", "soft") == "soft":
        return _votes(graph, last, source, task), None
    matrix = source.inputs["X"] if source.width else side_by_side(graph, last, source, double=double)
    width, library = source.width or len(source.inputs), type(last).__module__.partition(".")[0]
    if library == "xgboost" and hasattr(source.rows, "toarray"):  # zeros that a sparse matrix lacks are missing
        matrix = graph.node("Where", [graph.node("Equal", [matrix, 0.0]), float("nan"), matrix])
    margin = rule is not None and rule.margin
    if type(last).__name__ in ("SVC", "NuSVC") and not margin and task == "binary" and rule == _Rule():
        last = copy(last)  # it decides by votes, not by its probabilities
        last.classes_ = np.arange(2)
        scores, label = add_sklearn(graph, matrix, last, task, width)
        second = graph.node("Gather", [scores, graph.constant([1], np.int64)], axis=1)
        return second, graph.reshape(graph.node("Equal", [label, graph.constant([1], np.int64)]), (-1, 1))
    return add_estimator(graph, matrix, last, task, width=width, double=double, margin=margin), None


def _votes(graph: GraphBuilder, model: Any, source: StepInput, task: Task) -> str:
    """Add the mean of a vote's members."""
    weights = np.ones(len(model.estimators_)) if model.weights is None else np.array(model._weights_not_none, float)
    parts = [
        graph.node("Mul", [_scores(graph, _opened(member)[0], source, task, _Rule())[0], weight])
        for member, weight in zip(model.estimators_, weights.tolist(), strict=True)
    ]
    total = reduce(lambda left, right: graph.node("Add", [left, right]), parts)
    return graph.node("Div", [total, float(weights.sum())])


def _is_turned(last: Any, task: Task, favorable: Any, *, ours: bool) -> bool:
    """Return whether the favorable class is the first of two."""
    if favorable is None:
        return False
    classes = list(getattr(last, "classes_", ()))
    if task != "binary":
        raise ParameterError(f"favorable={favorable!r} is for two classes, and the last step is for {task}")
    if not any(same_value(label, favorable) for label in classes):
        shown = " and ".join(value_text(label) for label in classes)
        raise ParameterError(f"favorable={favorable!r} is not a class of the last step; its classes are {shown}")
    turned = same_value(classes[0], favorable)
    if turned and ours:
        raise ParameterError("a method of fairkit has its favorable class from training: give `favorable` there")
    return turned


def _settings(last: Any, task: Task, features: list[str], *, turned: bool) -> dict[str, Any]:
    """Return the file's record of its data, as the files of `fairkit mitigate` have it."""
    classes = [one.item() if isinstance(one, np.generic) else one for one in getattr(last, "classes_", ())]
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


def _culprit(steps: Sequence[Any], X: Any, kinds: Mapping[str, ElementType], failed: ModelError) -> str:
    """Say which step is the first that has no form in ONNX or gives other numbers there, and what to write instead."""
    for named, step, part in _stages(steps[:-1], X[:_CHECKED_ROWS]):
        if reason := _difference(step, part):
            return (
                f"the step {named} {reason}\nApply such a step to the table first, export the pipeline without it, and "
                "give its columns as X; or write it with a transformer that skl2onnx converts (OneHotEncoder, "
                "StandardScaler, KBinsDiscretizer, ...), or register a converter with "
                "skl2onnx.update_registered_converter"
            )
    return f"the last step, {type(steps[-1]).__name__}: {failed}" if len(steps) > 1 else str(failed)


def _stages(steps: Sequence[Any], rows: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield every step with its rows, in order; those inside pipelines and column transformers one by one."""
    for step in steps:
        if hasattr(step, "transformers_") and hasattr(rows, "columns"):
            from sklearn.utils import _safe_indexing

            for _, part, chosen in step.transformers_:
                if hasattr(part, "transform") and np.size(chosen):
                    some = _safe_indexing(rows, chosen, axis=1)
                    for named, one, its in _stages([part], some):
                        yield f"{named} over {', '.join(map(str, some.columns))}", one, its
        elif hasattr(step, "steps"):
            yield from _stages([step for _, step in step.steps], rows)
        else:
            yield type(step).__name__, step, rows
        rows = step.transform(rows)


def _difference(step: Any, rows: Any) -> str:
    """Return what a step by itself does otherwise in ONNX, in words; empty where it does the same."""
    rows = rows.toarray() if hasattr(rows, "toarray") else rows
    columns, expected = frame_columns(rows), step.transform(rows)
    expected = np.asarray(expected.toarray() if hasattr(expected, "toarray") else expected)
    if expected.dtype.kind in "OUS":
        return ""  # texts for a later step
    worst, reason = np.inf, ""
    for types in _types({name: _kind(values) for name, values in columns.items()}, alone=False):
        try:
            graph = GraphBuilder()
            made = add_transformers(graph, [step], _source(graph, [step, None], rows, types))
            graph.output("given", made.inputs["X"], "float", made.width)
            got = run_columns(open_session(graph.build()), columns)["given"]
            worst = min(worst, float((np.abs(got - expected) / np.maximum(1, np.abs(expected))).max()))
        except Exception as error:  # a converter's, or onnxruntime's
            reason = first_line(error)
    if np.isfinite(worst):
        return f"gives numbers that differ by up to {worst:.2g} in ONNX" if worst > PARITY else ""
    return reason if reason.startswith("has no form") else f"has no form in ONNX: {reason}"


def _add_ours(graph: GraphBuilder, last: Any, matrix: str, rule: _Rule | None, *, turned: bool) -> None:
    """Add a method of fairkit: its file has an input for each column that it was fitted on."""
    import onnx

    proto = onnx.load_from_string(last.to_onnx())
    names = [str(name) for name in getattr(last, "feature_names_in_", [f"x{i}" for i in range(last.n_features_in_)])]

    def fed(entry: Any) -> str:
        if entry.name not in names:
            return graph.input(entry.name, "float")
        column = graph.node("Gather", [matrix, graph.constant([names.index(entry.name)], np.int64)], axis=1)
        return graph.node("Cast", [column], to=entry.type.tensor_type.elem_type)

    outputs = graph.inline(proto, {entry.name: fed(entry) for entry in proto.graph.input})
    if rule is not None:  # a threshold classifier around it decides
        _declare(graph, outputs["score"], None, "binary", rule, turned=turned)
        return
    for output in proto.graph.output:
        kind: Any = _NAMES[output.type.tensor_type.elem_type]
        shape = output.type.tensor_type.shape.dim
        graph.output(output.name, outputs[output.name], kind, shape[1].dim_value or None)


def _check(
    proto: onnx.ModelProto, pipeline: Any, steps: Sequence[Any], X: Any, columns: Mapping[str, NDArray[Any]],
    task: Task, rule: _Rule | None, *, turned: bool
) -> None:  # fmt: skip
    """Compare the file with the pipeline on the first rows: its scores, and its decisions with those of `predict`."""
    rows, last = X[:_CHECKED_ROWS], steps[-1]
    try:
        session = open_session(proto)
        outputs = run_columns(session, {name: cells[:_CHECKED_ROWS] for name, cells in columns.items()})
    except Exception as error:  # onnxruntime's own kinds
        raise ModelError(f"onnxruntime does not run the exported file: {first_line(error)}") from error
    said, matrix = np.asarray(pipeline.predict(rows)).reshape(len(rows)), rows
    if task == "regression":
        expected = said.astype(np.float64)
    else:
        for step in steps[:-1]:
            matrix = step.transform(matrix)
        margin = rule is not None and rule.margin
        scores = np.asarray((last.decision_function if margin else last.predict_proba)(matrix), dtype=np.float64)
        expected = (-scores if turned else scores) if margin else scores[:, 0 if turned else 1]
        expected = scores if task == "multiclass" else expected
    scale = 1.0 if rule is not None and task != "regression" and not rule.margin else max(1.0, np.abs(expected).max())
    got = outputs.get("score", outputs.get("probabilities"))
    assert got is not None  # noqa: S101 -- add_outputs declared one of them
    worst = float(np.abs(got.reshape(expected.shape) - expected).max()) / scale
    if not worst <= PARITY:
        raise ModelError(
            f"the exported file differs from the pipeline by up to {worst:.2g} (allowed: {PARITY:g}). A step that "
            "rounds, or that reads numbers as text, does so otherwise in ONNX"
        )
    if task == "regression":
        return
    classes = np.asarray(last.classes_)
    if task == "multiclass":
        apart = classes[got.argmax(axis=1)] != said
        near = np.diff(np.sort(expected, axis=1)[:, -2:]).ravel() <= PARITY
    else:
        apart = (outputs["decision_probability"].reshape(-1) >= 0.5) != (said == classes[0 if turned else 1])
        limit = _Rule() if rule is None else rule
        near = np.abs(expected - (limit.turned if turned else limit).threshold) <= PARITY * scale
    # a score that single precision moves across the threshold: one row in a thousand
    if (apart & ~near).any() or apart.sum() > max(1, len(rows) // 1_000):
        raise ModelError(
            f"the exported file would decide {apart.sum():,} of {len(rows):,} rows otherwise than predict, which does "
            f"not take the most probable class of {type(last).__name__}: put CalibratedClassifierCV or, for two "
            "classes, FixedThresholdClassifier around it"
        )
