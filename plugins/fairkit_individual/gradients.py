"""From an audited model to its features and its outputs in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import MissingExtraError, ModelError
from fairkit_individual.reimport import find_head, run_features
from fairkit_individual.rewards import CLIP
from fairkit_onnx.read.feeds import RANDOM_INPUT
from fairkit_similarity.outputs import centred_logits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit_individual.collect import AuditedRows
    from fairkit_individual.rewards import Difference, Output
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

    `difference` says which logits are compared, as in `fairkit_individual.rewards.outputs`.
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

    from fairkit_similarity.networks import as_matrix

    model = scorer.estimator
    inner = getattr(model, "model_", None) if not hasattr(model, "torch_module") else None
    if inner is not None and isinstance(getattr(inner, "estimator", None), torch.nn.Module):
        module, features = inner.estimator, inner.encoder.transform(rows.columns)
    elif hasattr(model, "torch_module") and hasattr(model, "torch_features"):
        module, features = model.torch_module, model.torch_features(rows.columns)
    else:
        raise ModelError(
            f"dif: method=gradient needs a torch module or an ONNX file, and a {type(model).__name__} is neither; "
            "wrap the module in fairkit_individual.torch_models.TorchClassifier, or use method=sample"
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
