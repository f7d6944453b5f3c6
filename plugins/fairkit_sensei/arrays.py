"""Training on a matrix of features, such as embeddings of text or images."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.progress import no_progress
from fairkit_sensei.counterfactuals import GivenCounterfactuals
from fairkit_sensei.fitting import train_network
from fairkit_sensei.records import SenSeIRows, SenSeISettings, Trained
from fairkit_similarity.geometry import Geometry

if TYPE_CHECKING:
    from fairkit.progress import Progress
    from fairkit_similarity.metric import FairMetric


def fit_network(
    features: Any,
    target: Any,
    *,
    metric: FairMetric | None = None,
    directions: Any = None,
    sigma: Any = None,
    module: Any = None,
    counterfactuals: tuple[Any, Any] | None = None,
    validation: tuple[Any, Any] | None = None,
    sample_weight: Any = None,
    regression: bool = False,
    hidden: Sequence[int] = (100,),
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = no_progress,
    **settings: Any,
) -> Trained:
    """Train a network on any features."""
    rows = _rows(features, target, sample_weight, "features", regression)
    chosen = _settings(settings)
    scale = (1.0, 0.0)
    if regression:
        scale = (float(rows.target.std()), float(rows.target.mean()))
    rows = dataclasses.replace(rows, target=(rows.target - scale[1]) / scale[0])
    outside = None
    if validation is not None:
        outside = _rows(*validation, None, "validation features", regression, least=1)
        outside = dataclasses.replace(outside, target=(outside.target - scale[1]) / scale[0])
    geometry = None
    if chosen.method in ("sensei", "sensr"):
        geometry = Geometry.learn(rows.x.astype(np.float64), _matrix(metric, directions, sigma, rows.x.shape[1]))
    flipped = None
    if counterfactuals is not None:
        flipped = GivenCounterfactuals(*counterfactuals, len(rows.x))
        if flipped.features.shape[1] != rows.x.shape[1]:
            raise DataError(f"counterfactuals have {flipped.features.shape[1]} features, the rows {rows.x.shape[1]}")
    return train_network(
        module,
        rows,
        chosen,
        hidden=hidden,
        classes=0 if regression else int(rows.target.max()) + 1,
        geometry=geometry,
        counterfactuals=flipped,
        validation=outside,
        regression=regression,
        scale=scale,
        seed=seed,
        threads=threads,
        progress=progress,
    )


def _rows(features: Any, target: Any, weights: Any, name: str, regression: bool, *, least: int = 2) -> SenSeIRows:
    x = np.asarray(features, dtype=np.float32)
    y = np.asarray(target, dtype=np.float64)
    if x.ndim != 2 or y.shape != (len(x),) or not len(x):
        raise DataError(f"{name} of shape {x.shape} and targets of shape {y.shape} do not fit together")
    if not np.isfinite(x).all() or not np.isfinite(y).all():
        raise DataError(f"{name} or their targets hold numbers that are not finite")
    if not regression and ((y < 0).any() or (y != np.round(y)).any()):
        raise DataError("targets must be classes 0, 1, ...; for numbers say regression=True")
    if len(np.unique(y)) < least:
        what = "the same value" if regression else "the same class"
        raise DataError(f"all {len(y)} rows have {what}; nothing to learn")
    own = None if weights is None else np.asarray(weights, dtype=np.float64)
    if own is not None and (own.shape != y.shape or not np.isfinite(own).all() or (own < 0).any()):
        raise DataError("sample_weight must be one nonnegative finite number for each row")
    return SenSeIRows(x=x, target=y, weights=own)


def _settings(options: dict[str, Any]) -> SenSeISettings:
    names = [field.name for field in dataclasses.fields(SenSeISettings)]
    for name in options:
        if name not in names:
            raise ParameterError(f"there is no setting {name!r}. {did_you_mean(name, names, what='settings')}")
    chosen = SenSeISettings(**options)
    for name in ("rho", "epsilon", "weight_decay"):
        value = float(getattr(chosen, name))
        if not 0 <= value < np.inf:
            raise ParameterError(f"{name}={value} must be a finite number, 0 or larger")
    for name in ("epochs", "batch", "rate", "patience"):
        value = getattr(chosen, name)
        if value is not None and not value > 0:
            raise ParameterError(f"{name}={getattr(chosen, name)} must be above 0")
    if chosen.method not in ("sensei", "sensr", "clp", "erm"):
        raise ParameterError(
            f"method={chosen.method!r} is unknown. {did_you_mean(chosen.method, ('sensei', 'sensr', 'clp', 'erm'))}"
        )
    return dataclasses.replace(chosen, epsilon=float(chosen.epsilon), rho=float(chosen.rho))


def _matrix(metric: FairMetric | None, directions: Any, sigma: Any, width: int) -> Any:
    """Return the matrix with d² = ‖(x - x') · matrix‖²."""
    if sum(one is not None for one in (metric, directions, sigma)) != 1:
        raise ParameterError("give the fair metric as one of metric, directions and sigma")
    if metric is not None:
        encodings = metric.encoder.columns
        if any(column.kind != "number" or column.missing for column in encodings):
            raise DataError("the fair metric is for columns of text or with missing values, not for a matrix")
        if len(encodings) != width:
            raise DataError(
                f"the fair metric is for {len(encodings)} features, but there are {width}: learn the metric on the "
                "features that the network gets"
            )
        return metric.matrix / np.array([column.scale for column in encodings])[:, None]
    from fairkit_similarity.encode import ColumnEncoding, Encoder
    from fairkit_similarity.metric import FairMetric

    names = [ColumnEncoding(name=f"x{place}", kind="number") for place in range(width)]
    encoder = Encoder(columns=tuple(names))
    if sigma is not None:
        return FairMetric.of_sigma(encoder, np.asarray(sigma), {}).matrix
    ignored = np.atleast_2d(np.asarray(directions, dtype=np.float64))
    if ignored.shape[1] != width or not np.isfinite(ignored).all():
        raise DataError(f"directions of shape {ignored.shape} do not fit {width} features, or are not finite")
    return FairMetric.projecting(encoder, ignored, {}).matrix
