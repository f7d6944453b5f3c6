"""What the scikit-learn faces of methods share: explicit keyword arguments, pickles, parameters, files."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fairkit.auditing.run import audit
from fairkit.errors import MissingExtraError, ParameterError
from fairkit.parameters import current_names, parse_parameters
from fairkit.support.calls import checked
from fairkit.support.files import write_atomic
from fairkit_onnx.write.export import serialised

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import onnx

    from fairkit.mitigators import Mitigator


STEP_CHECKS = ("_validate_steps", "_validate_transformers")
"""Where scikit-learn asks whether a step before the last is a transformer."""


class Face:
    """An estimator made from a method's class; `restores` makes its class again when it is unpickled."""

    _method: type[Any]
    restores: ClassVar[Any]
    """Class method or static method: from a method to its estimator's class."""

    def __getattr__(self, name: str) -> Any:
        # scikit-learn would say that this is no transformer, not what to write; everybody else is told that the
        # attribute is missing, so that no tool takes the estimator for a transformer
        if name == "transform" and sys._getframe(1).f_code.co_name in STEP_CHECKS:
            raise TypeError(
                f"{self._method.name!r} trains a model of its own and gives no table to a next step. Make it the last "
                f"step, with the learner inside: Pipeline([..., ('model', fairkit.mitigator({self._method.name!r})"
                "(...))]), and fit with model__sensitive_features=... (a method that trains takes learner=...)"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self) -> Any:
        return _restore, (type(self).restores, self._method, dict(self.__dict__))

    def _made(self) -> Any:
        """Return the method with the parameters as they were set; a mapping that was left out is left out."""
        fields = dataclasses.fields(self._method.Parameters)
        parameters = {field.name: getattr(self, field.name) for field in fields}
        factory = {field.name for field in fields if field.default_factory is not dataclasses.MISSING}
        values = {name: value for name, value in parameters.items() if value is not None or name not in factory}
        return self._method(parse_parameters(self._method.Parameters, values, owner=self._method.name))


def face(
    method: type[Mitigator], bases: tuple[Any, ...], *, before: Mapping[str, Any], after: Mapping[str, Any]
) -> type[Any]:
    """Make an estimator's class."""
    defaults = {field.name: _default(field) for field in dataclasses.fields(method.Parameters)}
    body = {
        "__init__": _initialiser(method, {**before, **defaults, **after}),
        "__doc__": method.__doc__,
        "__module__": method.__module__,
        "_method": method,
    }
    # the class takes the method's place by its name only: pickles find it through `_restore`
    return type(f"{method.__name__}Estimator", bases, body)


def written(proto: onnx.ModelProto, path: str | Path | None) -> bytes:
    """Return a model's bytes, written to a path if one is given."""
    content = serialised(proto)
    if path is not None:
        write_atomic(Path(path), content)
    return content


def _initialiser(method: type[Mitigator], defaults: Mapping[str, Any]) -> Any:
    """Make an ``__init__`` with explicit keyword arguments: scikit-learn reads its signature."""

    def __init__(self: Any, **values: Any) -> None:  # noqa: N807 - it becomes a method
        values = current_names(method.Parameters, values, owner=method.name)
        for name, default in defaults.items():
            setattr(self, name, values.pop(name, default))
        if values:
            raise TypeError(f"{type(self).__name__} has no parameter {next(iter(values))!r}")

    kinds = inspect.Parameter
    own = [kinds("self", kinds.POSITIONAL_OR_KEYWORD)]
    own += [kinds(name, kinds.KEYWORD_ONLY, default=default) for name, default in defaults.items()]
    __init__.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return __init__


def _default(field: dataclasses.Field[Any]) -> Any:
    # mappings: scikit-learn wants defaults that cannot be changed
    return None if field.default is dataclasses.MISSING else field.default


def _restore(make: Callable[[Any], type[Any]], method: type[Mitigator], state: dict[str, Any]) -> Any:
    """Unpickle: make the class again, then fill the instance."""
    estimator = make(method)()
    estimator.__dict__.update(state)
    return estimator


# Fairness metrics as scikit-learn scorers, for cross-validation and searches over parameters.


@checked
def scorer(metric: str, sensitive: str | None = None, *, favorable: Any = None) -> Scorer:
    """Return a scorer for `cross_val_score`, `GridSearchCV` and the like: larger is better.

    A metric where less is better, such as a difference between groups, is scored by its negative.

    Parameters
    ----------
    metric
        The finding's name, such as ``"demographic_parity_difference"`` or ``"accuracy"``.
    sensitive
        A column of X, in the words of `fairkit.load_data` (``"sex"``, ``"age:25:60"``, ``"sex+race"``). None: the
        groups come beside X, as ``sensitive_features``: ``scorer(...).set_score_request(sensitive_features=True)``
        asks scikit-learn's metadata routing for them.
    favorable
        The label's value that is good for the person; None: as in `fairkit.audit`.

    Returns
    -------
    Scorer
        Called with an estimator, X of shape [n, d] and y of shape [n], it returns a number; NaN where the metric is
        not defined on these rows.

    Examples
    --------
    >>> gap = fairkit.scorer("demographic_parity_difference", sensitive="sex")         # doctest: +SKIP
    >>> GridSearchCV(model, grid, scoring={"accuracy": "accuracy", "gap": gap}, refit="accuracy")  # doctest: +SKIP
    """
    return Scorer(metric, sensitive, favorable)


class Scorer:
    """What `scorer` returns; it has no interval: a search over models looks at its rows too often for one."""

    def __init__(self, metric: str, sensitive: str | None, favorable: Any) -> None:
        self.metric, self.sensitive, self.favorable = metric, sensitive, favorable
        self._requests: dict[str, Any] = {}

    def __repr__(self) -> str:
        """Return the call that makes it."""
        groups = "" if self.sensitive is None else f", sensitive={self.sensitive!r}"
        return f"fairkit.scorer({self.metric!r}{groups})"

    def __call__(
        self, estimator: Any, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> float:
        """Measure an estimator on rows."""
        if self.sensitive is not None and sensitive_features is not None:
            raise ParameterError(
                f"`sensitive` names the groups ({self.sensitive}) and `sensitive_features` gives others; leave one out"
            )
        groups = sensitive_features if self.sensitive is None else self.sensitive
        report = audit(
            estimator, X, y, sensitive_features=groups, sample_weight=sample_weight, favorable=self.favorable
        )
        columns = list(report.data.groups)
        between = any(each.metric == self.metric and each.sensitive in columns for each in report.findings)
        finding = report.find(self.metric, columns[0] if between else None)
        if finding.value is None:
            return math.nan
        return -finding.value if finding.better == "lower" else finding.value

    def set_score_request(
        self, *, sensitive_features: bool | str | None = None, sample_weight: bool | str | None = None
    ) -> Scorer:
        """Ask scikit-learn's metadata routing for what stands beside X: True, or the name that it has there."""
        requested: Mapping[str, Any] = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        self._requests |= {name: alias for name, alias in requested.items() if alias is not None}
        return self

    def get_metadata_routing(self) -> Any:
        """Return scikit-learn's `MetadataRequest`."""
        try:
            from sklearn.utils.metadata_routing import MetadataRequest
        except ImportError as error:
            raise MissingExtraError("scikit-learn", "sklearn") from error
        request = MetadataRequest(owner=self)
        for name, alias in self._requests.items():
            request.score.add_request(param=name, alias=alias)
        return request
