"""From an audited model to its features and its outputs in torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import MissingExtraError, ModelError
from fairkit.support.lazy_dataclass import dataclass
from fairkit_individual.operators import FLOATS, operators
from fairkit_individual.tables import CLIP
from fairkit_onnx.file import open_session
from fairkit_onnx.read.feeds import RANDOM_INPUT
from fairkit_onnx.structure.ensemble import TREES
from fairkit_similarity.networks import as_matrix, centred_logits, check_module

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit_individual.tables import AuditedRows, Difference, Output
    from fairkit_similarity.metric import FairMetric


Tensor = Any
Floats = "NDArray[np.float64]"

NEAR = 1e-4
"""How exactly the features must follow from the metric's columns, in standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gradients:
    """A model as features and a function of them."""

    columns: tuple[str, ...]  # the raw columns that the model reads
    features: NDArray[np.float64]  # shape (n, p): the rows' features
    outputs: Callable[[Tensor], Tensor]  # in torch, from features to the outputs that `dif` compares, shape (n, K)


def gradients_of(context: AuditContext, rows: AuditedRows, output: Output, difference: Difference) -> Gradients:
    """Open a model: a torch module in memory, or the differentiable end of an ONNX graph.

    `difference` says which logits are compared, as in `fairkit_individual.tables.outputs`.
    """
    try:
        import torch  # noqa: F401 -- asked for here, used below
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    scorer: Any = context.scorer
    if hasattr(scorer, "estimator"):
        return _of_module(scorer, rows, output, difference)
    if not hasattr(scorer, "reading"):
        raise ModelError(
            "dif: method=gradient needs a model, and the predictions are columns of the table; use method=sample"
        )
    model, reading = scorer.model, scorer.reading
    name = None if reading.score is None else reading.score.name
    if name is None or scorer.shares is not None or name not in model.output_names:
        raise ModelError(
            f"dif: method=gradient needs one output of scores, and {scorer.info.name} is a mixture of models or gives "
            "labels only; use method=sample"
        )
    head = find_head(model.proto, name, model.name)
    feeds = {feed.input.name: feed.build(rows.columns) for feed in scorer.feeds}
    if RANDOM_INPUT in {entry.name for entry in model.inputs}:
        feeds[RANDOM_INPUT] = np.zeros((len(rows), 1), dtype=np.float32)
    features, _ = run_features(model.proto, head, feeds, model.name)

    def outputs(x: Tensor) -> Tensor:
        return _logits(_read(head(x), reading, scorer.task, output), output, difference)

    return Gradients(columns=scorer.columns, features=features, outputs=outputs)


def _logits(values: Tensor, output: Output, difference: Difference) -> Tensor:
    return centred_logits(values) if output == "logit" and difference == "mean" else values


def _of_module(scorer: Any, rows: AuditedRows, output: Output, difference: Difference) -> Gradients:
    """An object in memory: one of ours (`model_`), or one with `torch_module` and `torch_features`."""
    import torch

    model = scorer.estimator
    inner = getattr(model, "model_", None) if not hasattr(model, "torch_module") else None
    if inner is not None and isinstance(getattr(inner, "estimator", None), torch.nn.Module):
        module, features = inner.estimator, inner.encoder.transform(rows.columns)
    elif hasattr(model, "torch_module") and hasattr(model, "torch_features"):
        module, features = model.torch_module, model.torch_features(rows.columns)
    else:
        raise ModelError(
            f"dif: method=gradient needs a torch module or an ONNX file, and a {type(model).__name__} is neither; "
            "wrap the module in fairkit_individual.gradients.TorchClassifier, or use method=sample"
        )
    double = _doubled(module)

    def outputs(x: Tensor) -> Tensor:
        raw = as_matrix(double(x))
        if scorer.task == "regression":
            return raw
        if raw.shape[1] <= 2 and scorer.task == "binary":
            logit = raw if raw.shape[1] == 1 else raw[:, 1:] - raw[:, :1]
            # the sign of a logit does not matter to squared differences, nor that of a probability
            chance = torch.sigmoid(logit)
            found = _clipped_logit(chance) if output == "logit" else chance
        else:
            chance = torch.softmax(raw, dim=1)
            found = _centred_logs(chance) if output == "logit" else chance
        return _logits(found, output, difference)

    return Gradients(columns=scorer.columns, features=np.asarray(features, dtype=np.float64), outputs=outputs)


def _doubled(module: Any) -> Any:
    import copy

    return copy.deepcopy(module).cpu().double().eval()


def _read(raw: Tensor, reading: Any, task: str, output: Output) -> Tensor:
    """Turn the graph's output into what `rewards.outputs` gives; without a reading it is a probability."""
    import torch

    raw = raw.reshape(len(raw), -1)
    if task == "regression":
        return raw
    if task == "binary":
        if reading.kind == "logit" and output == "logit":
            return raw
        chance = raw
        if reading.kind == "logit":
            chance = torch.sigmoid(raw) if raw.shape[1] == 1 else torch.softmax(raw, dim=1)
        if chance.shape[1] > 1:
            chance = chance[:, [reading.place]]
        return _clipped_logit(chance) if output == "logit" else chance
    order = np.argsort(reading.class_places).tolist()
    if reading.kind == "logit":
        return raw[:, order] if output == "logit" else torch.softmax(raw, dim=1)[:, order]
    return _centred_logs(raw[:, order]) if output == "logit" else raw[:, order]


def _clipped_logit(chance: Tensor) -> Tensor:
    chance = chance.clamp(CLIP, 1.0 - CLIP)
    return chance.log() - (1.0 - chance).log()


def _centred_logs(chance: Tensor) -> Tensor:
    logs = chance.clamp(CLIP, 1.0 - CLIP).log()
    return logs - logs.mean(dim=1, keepdim=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class People:
    """Rows in the space of the fair metric's encoded columns."""

    x: NDArray[np.float64]  # shape (n, q): the encoded columns less their means
    matrix: NDArray[np.float64]  # shape (q, k): d²(x, x') = ‖(x - x') · matrix‖²
    to_features: NDArray[np.float64]
    shift: NDArray[np.float64]  # shapes (q, p) and (p,): on the rows the model's features are x · to_features + shift


def people_of(metric: FairMetric, rows: AuditedRows, gradients: Gradients) -> People:
    """Find the model's features as a linear function of the metric's encoded columns.

    The space in which people are moved is then the metric's, whatever the model's features look like: numbers of
    several models can be compared. Of the functions that fit, the smallest is taken: what the rows never vary in
    (the sum of one-hot columns) changes no feature.
    """
    encoded = metric.encoder.encode(rows.columns)
    x = encoded - encoded.mean(axis=0)
    features = gradients.features
    shift = features.mean(axis=0)
    to_features = np.linalg.lstsq(x, features - shift, rcond=1e-9)[0]
    rest = np.abs(x @ to_features - (features - shift)).max(axis=0)
    spread = np.maximum(features.std(axis=0), 1e-6 * np.maximum(np.abs(shift), 1.0))
    bad = int((rest > NEAR * spread).sum())
    if bad:
        unread = [name for name in gradients.columns if name not in metric.columns]
        why = (
            f"the model reads {', '.join(map(repr, unread))}, which the metric does not have"
            if unread
            else "the model encodes some of them otherwise, such as in bins or by products of columns"
        )
        raise ModelError(
            f"dif: method=gradient moves people in the fair metric's columns, but {bad} of the model's {len(shift)} "
            f"features do not follow linearly from them: {why}. Use method=sample, or a metric over what it reads"
        )
    return People(x=x, matrix=metric.matrix, to_features=to_features, shift=shift)


# The differentiable end of an ONNX graph, as a function in torch.


PARITY = 1e-3
"""The largest difference between the graph and the function in torch, relative to the largest output."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Head:
    """What a graph computes from its features."""

    features: str  # the tensor from which on every operator has a gradient, as far back as there is a single one
    output: str  # the output that it is for
    nodes: Sequence[Any]  # the nodes between, in order
    constants: Mapping[str, Any]  # their constant inputs

    def __call__(self, features: Tensor) -> Tensor:
        """Compute the output in torch, in double precision; gradients flow."""
        values: dict[str, Tensor] = {self.features: features, "": None}
        table = operators()
        for node in self.nodes:
            inputs = [values[name] if name in values else self.constants[name] for name in node.input]
            values[node.output[0]] = table[node.domain or "", node.op_type](inputs, _attributes(node))
        return values[self.output]


def find_head(proto: onnx.ModelProto, output: str, name: str) -> Head:
    """Walk back from an output while every operator has a gradient."""
    try:
        import torch  # noqa: F401 -- asked for here, used by the operators
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    graph = proto.graph
    producers = {made: index for index, node in enumerate(graph.node) for made in node.output if made}
    constants = _constants(graph)
    output = _through_map(graph, producers, output)
    open_tensors = {output}
    passed: list[int] = []
    cut, behind = output, 0
    stopped = "a graph input"
    while True:
        if len(open_tensors) == 1:
            cut, behind = next(iter(open_tensors)), len(passed)
        latest = max(open_tensors, key=lambda tensor: producers.get(tensor, -1))
        if latest not in producers:
            break
        node = graph.node[producers[latest]]
        if not _differentiable(node, latest, constants):
            stopped = node.op_type
            break
        passed.append(producers[latest])
        open_tensors.remove(latest)
        open_tensors |= {tensor for tensor in node.input if tensor and tensor not in constants}
        if not open_tensors:
            break
    trees = [node.op_type for node in graph.node if node.op_type in TREES]
    if trees or not behind:
        why = "an ensemble of trees, which has no gradient" if trees else f"made by {stopped}, without a gradient"
        raise ModelError(
            f"dif: method=gradient climbs a gradient, but the output {output!r} of {name} is {why}; "
            "use method=sample, which is exact on the rows of the data for any model"
        )
    nodes = [graph.node[index] for index in sorted(passed[:behind])]
    constants_used = {tensor for node in nodes for tensor in node.input if tensor in constants}
    return Head(
        features=cut,
        output=output,
        nodes=nodes,
        constants={tensor: _as_tensor(constants[tensor]) for tensor in constants_used},
    )


def run_features(
    proto: onnx.ModelProto, head: Head, feeds: Mapping[str, NDArray[Any]], name: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the features with onnxruntime, and check that torch gives the same output from them."""
    import onnx
    import torch

    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    del whole.graph.output[:]
    inputs = {entry.name for entry in proto.graph.input}
    tensors_run = [tensor for tensor in dict.fromkeys((head.features, head.output)) if tensor not in inputs]
    whole.graph.output.extend(onnx.ValueInfoProto(name=tensor) for tensor in tensors_run)
    values = dict(zip(tensors_run, open_session(whole).run(tensors_run, dict(feeds)), strict=True)) | {
        tensor: feeds[tensor] for tensor in (head.features,) if tensor in inputs
    }
    features = np.asarray(values[head.features], dtype=np.float64)
    outputs = np.asarray(values[head.output], dtype=np.float64)
    if features.ndim != 2 or not np.isfinite(features).all():
        raise ModelError(
            f"dif: the differentiable part of {name} begins at {head.features!r} of shape {features.shape}, not at a "
            "finite matrix with one row for each person; use method=sample"
        )
    with torch.no_grad():
        again = head(torch.from_numpy(features)).numpy()
    gap = float(np.abs(again - outputs).max(initial=0.0)) if again.shape == outputs.shape else np.inf
    if not gap <= PARITY * max(1.0, float(np.abs(outputs).max(initial=0.0))):
        raise ModelError(
            f"dif: {name} as read into torch differs from the file by up to {gap:.2g}; use method=sample, and please "
            "report this with the model's operators"
        )
    return features, outputs


def _through_map(graph: Any, producers: Mapping[str, int], output: str) -> str:
    """A map of class probabilities (ZipMap) only names the columns of its input."""
    node = graph.node[producers[output]] if output in producers else None
    return str(node.input[0]) if node is not None and node.op_type == "ZipMap" else output


def _differentiable(node: Any, output: str, constants: Mapping[str, Any]) -> bool:
    if (node.domain or "", node.op_type) not in operators() or output != node.output[0]:
        return False
    if node.op_type == "Cast":
        return _attributes(node)["to"] in FLOATS
    shapes = {"Reshape": 1, "Squeeze": 1, "Unsqueeze": 1, "Gather": 1}
    shape = shapes.get(node.op_type)
    return shape is None or len(node.input) <= shape or node.input[shape] in constants


def _constants(graph: Any) -> dict[str, Any]:
    from onnx import numpy_helper

    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            value = next(iter(_attributes(node).values()))
            constants[node.output[0]] = (
                numpy_helper.to_array(value) if hasattr(value, "raw_data") else np.asarray(value)
            )
        elif node.op_type == "Identity" and node.input[0] in constants:
            constants[node.output[0]] = constants[node.input[0]]
    return constants


def _as_tensor(value: NDArray[Any]) -> Tensor:
    import torch

    array = np.array(value)
    return torch.as_tensor(array.astype(np.float64) if array.dtype.kind == "f" else array)


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import helper

    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}


# Torch modules as models that can be audited, and searched by their gradients.


class TorchClassifier:
    """A torch module over numeric columns, for `fairkit.audit`.

    Examples
    --------
    >>> model = TorchClassifier(net, ["age", "hours"], classes=["no", "yes"])             # doctest: +SKIP
    >>> fairkit.audit(model, data, auditors=["dif"],
    ...               parameters={"dif": {"method": "gradient"}})                         # doctest: +SKIP
    """

    def __init__(self, module: Any, features: Sequence[str], classes: Sequence[Any]) -> None:

        count = len(classes)
        check_module(module, len(features), (1, 2) if count == 2 else (count,))
        self.torch_module = module.eval()
        self.feature_names_in_ = list(features)
        self.classes_ = np.asarray(classes)

    def torch_features(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the module's input for raw columns, shape (n, d)."""
        for name in self.feature_names_in_:
            if columns[name].dtype.kind not in "iufb":
                raise ModelError(f"the torch module reads numbers, and the column {name!r} holds text")
        stacked: NDArray[np.float32] = np.column_stack([columns[name] for name in self.feature_names_in_]).astype(
            np.float32
        )
        return stacked

    def predict_proba(self, frame: Any) -> NDArray[np.float64]:
        """Return the classes' probabilities, shape (n, K)."""
        import torch

        x = torch.from_numpy(np.asarray(frame, dtype=np.float32))
        with torch.no_grad():
            logits = as_matrix(self.torch_module(x)).double()
        if logits.shape[1] == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        return np.asarray(logits.softmax(dim=1).numpy())

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the likeliest class, shape (n,)."""
        labels: NDArray[Any] = self.classes_[self.predict_proba(frame).argmax(axis=1)]
        return labels
