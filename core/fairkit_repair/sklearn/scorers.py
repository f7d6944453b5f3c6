"""Fairness metrics as scikit-learn scorers, for cross-validation and searches over parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fairkit.auditing.run import audit
from fairkit.errors import MissingExtraError, ParameterError
from fairkit.support.calls import checked

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        found = [one for one in report.findings if one.metric == self.metric and one.sensitive in columns]
        finding = report.find(self.metric, columns[0] if found else None)
        if finding.value is None:
            return math.nan
        return -finding.value if finding.better == "lower" else finding.value

    def set_score_request(
        self, *, sensitive_features: bool | str | None = None, sample_weight: bool | str | None = None
    ) -> Scorer:
        """Ask scikit-learn's metadata routing for what stands beside X: True, or the name that it has there."""
        asked: Mapping[str, Any] = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        self._requests |= {name: alias for name, alias in asked.items() if alias is not None}
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
