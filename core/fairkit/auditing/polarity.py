"""Do the predictions make sense at all? What a wrong reading of a model looks like, over all rows."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import value_text
from fairkit.models.scorer import is_own
from fairkit.support.lazy_dataclass import dataclass, field, fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.models.scorer import Predictions, Scorer
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report

    Array = NDArray[np.float64]


CERTAIN = 4.0
"""Standard errors below chance from which a model is worse than chance."""
SURE = 0.9999
"""The confidence at which scores rank the wrong way round before anything is said of it."""
FEWEST = 30
"""With fewer rows nothing is said."""
ROUNDING = 1e-5
"""Scores that are nearer to the threshold may fall on either side of it by rounding."""
_UNSEEN, _UNRANKED = ", so no difference between groups can be seen", ", so nothing is ranked"
_NO_VERDICT = ". No verdict is made."


@dataclass(frozen=True, slots=True)
class Seen:
    """What some rows show."""

    rows: int
    mass: float  # the sum of the weights of rows with a label
    squares: float  # the sum of these weights' squares
    said: Array  # of the same rows the weight by what is predicted, shape [K]; empty where none is
    true: Array  # the same by the label
    right: float  # the weight of rows where both are the same
    low: float  # the smallest prediction
    high: float  # the largest
    apart: int = 0  # rows whose decision is another one than that of a score of at least 0.5
    refused: float = -np.inf  # the largest score with an unfavorable decision
    taken: float = np.inf  # the smallest with a favorable one
    ties: int = 0  # rows whose score is exactly the threshold
    ties_taken: int = 0  # those of them with a favorable decision

    def __add__(self, right: Seen) -> Seen:
        ends: dict[str, Any] = {"low": min, "taken": min, "high": max, "refused": max}
        pairs = {each.name: (getattr(self, each.name), getattr(right, each.name)) for each in fields(self)}
        return Seen(**{name: ends.get(name, operator.add)(*pair) for name, pair in pairs.items()})


@dataclass(frozen=True)
class Sense:
    """Looks at the predictions of one of the models (see `fairkit.auditing.measure.Reader`)."""

    place: int  # the model's number among those that score the rows together
    task: str  # its task
    classes: tuple[Any, ...]  # the classes of a multi-class one
    told: bool  # whether the user said which class is favorable, so that a model worse than chance is one
    labelled: bool  # whether there are labels
    by_output: tuple[str, str] | None
    own_rule: bool = False  # whether a repair decides by a rule of its own: what differs is a note, no warning
    cut: float | None = None  # the threshold, where they are
    own: bool = False  # whether the scores are on a scale of their own
    turned: bool = False  # whether they are one minus the output
    columns: tuple[str, ...] = ()
    spread: bool = False

    @classmethod
    def of(cls, scorer: Scorer, dataset: Dataset, index: int) -> Sense:
        """Return the checker of a model's predictions."""
        served: Mapping[str, Any] = scorer.info.outputs
        names = served.get("decision"), served.get("score")
        decides = all(names) and "threshold" not in served and not is_own(served)
        return cls(
            place=index,
            task=scorer.task,
            classes=scorer.classes,
            told=bool(getattr(scorer, "told", False)),
            labelled=dataset.roles.label is not None,
            by_output=(str(names[0]), _score_name(scorer, names[1])) if decides else None,
            own_rule=bool(getattr(scorer, "own_rule", False)),
            cut=served.get("threshold"),
            own=is_own(served),
            turned=bool(served.get("turned")),
        )

    def measure(self, batch: Batch, said: Sequence[Predictions]) -> Seen:
        """Total one batch."""
        predictions = said[self.place]
        known = slice(None) if batch.labelled is None else batch.labelled
        weights, count = batch.weights, float(len(batch) if batch.labelled is None else batch.labelled.sum())
        weights = None if weights is None else weights[known]
        base: dict[str, Any] = {
            "rows": len(batch),
            "mass": count if weights is None else float(weights.sum()),
            "squares": count if weights is None else _dot(weights, weights),
        }
        none = np.empty(0)
        if self.task in ("answers", "table"):  # some may be missing, and all may be equal: the auditor says so
            return Seen(**base | {"rows": 0}, said=none, true=none, right=0.0, low=0.0, high=1.0)
        if self.task in ("regression", "ranking"):
            score = predictions.score
            assert score is not None  # noqa: S101 -- a regression predicts numbers
            return Seen(**base, said=none, true=none, right=0.0, low=score.min(), high=score.max())
        if self.task == "binary":
            return self._binary(batch, predictions, weights, known, base)
        predicted = predictions.predicted
        assert predicted is not None  # noqa: S101 -- multi-class scorers predict classes
        size = len(self.classes)
        true, right = np.zeros(size), 0.0
        if batch.label is not None:
            index = np.select([batch.label[known] == value for value in self.classes], list(range(size)), size)
            true = np.bincount(index, weights, size + 1)[:size].astype(np.float64)
            same = predicted[known] == index
            right = float(np.count_nonzero(same) if weights is None else weights[same].sum())
        return Seen(
            **base,
            said=np.bincount(predicted[known], weights, size).astype(np.float64),
            true=true,
            right=right,
            low=float(predicted.min()),
            high=float(predicted.max()),
        )

    def _binary(
        self, batch: Batch, predictions: Predictions, weights: Array | None, known: Any, base: Mapping[str, Any]
    ) -> Seen:
        decision = predictions.decision
        assert decision is not None  # noqa: S101 -- binary predictions have decisions
        weighted = decision[known] if weights is None else weights * decision[known]
        yes = float(weighted.sum())
        true, right = np.zeros(2), 0.0
        if self.labelled and batch.favorable is not None:
            good = batch.favorable[known].astype(np.float64)
            favorable = float(good.sum()) if weights is None else _dot(weights, good)
            true = np.array([base["mass"] - favorable, favorable])
            right = base["mass"] - favorable - yes + 2 * _dot(weighted, good)
        low, high = float(decision.min()), float(decision.max())
        more: dict[str, Any] = {}
        if predictions.score is not None and self.by_output and _whole(decision, low, high):
            more = _beside_threshold(decision == 1, predictions.score)
        if predictions.score is not None and self.cut is not None and not self.own:
            near = (self.cut, float(np.float32(self.cut)))
            first, second = (1 - score if self.turned else score for score in near)
            ties = (predictions.score == first) | (predictions.score == second)
            more |= {"ties": int(ties.sum()), "ties_taken": int((decision[ties] > 0.5).sum())}
        return Seen(
            **base, said=np.array([base["mass"] - yes, yes]), true=true, right=right, low=low, high=high, **more
        )


def tied(sense: Sense, seen: Seen | None) -> list[str]:
    """Say how many rows are exactly at the threshold and how they are decided, or that a repair's rule has another."""
    if seen is not None and seen.apart and sense.by_output and sense.own_rule:
        return [_apart(sense.by_output, seen)]
    if seen is None or not seen.ties or sense.cut is None:
        return []
    how = "favorable" if seen.ties_taken == seen.ties else "unfavorable"
    return [
        f"{seen.ties:,} of {seen.rows:,} rows have exactly the score of the threshold, {sense.cut:g}; their decision "
        f"is {how}."
    ]


def _score_name(scorer: Scorer, name: Any) -> str:
    """Return the score's name: an output, or one minus it."""
    return f"1 - {name}" if scorer.info.outputs.get("turned") else str(name)


def ranks_backwards(findings: Sequence[Finding]) -> list[str]:
    """Say that the scores rank rows with the favorable label surely lower than the others."""
    for finding in findings:
        if finding.metric != "roc_auc" or finding.sensitive is not None or finding.interval is None:
            continue
        sure = finding.interval if finding.interval_at is None else finding.interval_at(SURE)
        if sure is not None and sure[1] < 0.5:
            return [
                f"The scores rank the wrong way round: ROC-AUC {finding.value:.3f}, interval "
                f"[{finding.interval[0]:.3f}, {finding.interval[1]:.3f}], is below 0.5, so rows with the favorable "
                "label get lower scores than the others. Is the score about the other label? The setting "
                "favorable_class says which class it is about."
            ]
    return []


def _dot(one: Array, other: Array) -> float:
    """Return Σ a b without BLAS, whose threads would wait for each other in every batch."""
    return float(np.einsum("i,i->", one, other))


def _whole(decision: Array, low: float, high: float) -> bool:
    """Tell whether every decision is 0 or 1."""
    return low >= 0 and high <= 1 and _dot(decision, decision) == float(decision.sum())


def _beside_threshold(taken: NDArray[np.bool_], score: Array) -> dict[str, Any]:
    """Compare decisions with those of a score of at least 0.5."""
    differing = np.flatnonzero(taken != (score >= 0.5))
    return {
        "apart": int((np.abs(score[differing] - 0.5) > ROUNDING).sum()),
        "refused": float(score.take(np.flatnonzero(~taken)).max(initial=-np.inf)),
        "taken": float(score.take(np.flatnonzero(taken)).min(initial=np.inf)),
    }


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is said first about the predictions."""

    warnings: list[str] = field(default_factory=list)  # sentences
    doubt: str | None = None  # why no verdict may be made; None where one may


def is_constant(report: Report) -> bool:
    """Return whether a report says that all rows were predicted alike."""
    return any(text.endswith(ending + _NO_VERDICT) for text in report.warnings for ending in (_UNSEEN, _UNRANKED))


def judged(sense: Sense, seen: Seen | None, dataset: Dataset) -> Judgement:
    """Return the warnings about a model's predictions, and the reason why no verdict is possible, if any.

    A model that gives everybody the same is equal between all groups, and one whose classes are read the wrong way
    round is as unequal as the right one: neither may pass.
    """
    judgement = Judgement()
    if seen is None or seen.rows < FEWEST:
        return judgement
    doubts = []
    if seen.low == seen.high:
        doubts.append(_constant(sense, seen))
    elif sense.labelled and sense.task not in ("regression", "ranking"):
        below = _below_chance(seen)
        if below is not None:
            accuracy, chance = below
            text = (
                f"The predictions are worse than chance: they are right on {accuracy:.1%} of the rows, and "
                f"{chance:.1%} would be right if they had nothing to do with the label."
            )
            if sense.told:
                judgement.warnings.append(text)
            else:
                doubts.append(
                    f"{text} Is the model read the wrong way round? The notes say how it was read; the settings "
                    "favorable_class, classes or favorable say how to read it"
                )
    dropped = dataset.profile.dropped_rows
    if dropped:
        doubts.append(f"{dropped:,} rows without a weight were left out: give each one, 0 where it shall not count")
    if seen.apart and sense.by_output and not sense.own_rule:
        judgement.warnings.append(_apart(sense.by_output, seen))
    judgement.warnings[:0] = [text + _NO_VERDICT for text in doubts]
    return Judgement(judgement.warnings, "; ".join(doubts) or None)


def _constant(sense: Sense, seen: Seen) -> str:
    if sense.task == "ranking":
        return f"Every item has the score {seen.low:.4g}{_UNRANKED}"
    if sense.task == "regression":
        return f"Every row is predicted {seen.low:.4g}{_UNSEEN}"
    if sense.task == "multiclass":
        what = f"the class {value_text(sense.classes[int(seen.low)])!r}"
    else:
        what = "the favorable decision" if seen.low == 1 else "the unfavorable decision"
        what = what if seen.low in (0, 1) else f"the favorable decision with chance {seen.low:.3g}"
    return f"All {seen.rows:,} rows get {what}{_UNSEEN}"


def _below_chance(seen: Seen) -> tuple[float, float] | None:
    """Return the share of right predictions, and that of chance, where the first is surely smaller."""
    accuracy = seen.right / seen.mass
    chance = float((seen.said / seen.mass) @ (seen.true / seen.mass))
    effective = seen.mass**2 / seen.squares
    error = np.sqrt(max(accuracy * (1 - accuracy), chance * (1 - chance)) / effective)
    return (accuracy, chance) if accuracy < chance - CERTAIN * error else None


def _apart(names: tuple[str, str], seen: Seen) -> str:
    label, score = names
    cut = ""
    if seen.refused <= seen.taken and np.isfinite([seen.refused, seen.taken]).all():
        cut = f" (it follows a threshold of about {(seen.refused + seen.taken) / 2:.3g})"
    return (
        f"On {seen.apart:,} of {seen.rows:,} rows {label!r} decides otherwise than {score!r} >= 0.5{cut}. {label!r} is "
        f"audited as the decision; to audit {score!r} >= 0.5 instead, set `threshold` to 0.5."
    )
