"""Which columns of a table hold somebody's predictions: decisions, scores, chances, classes or numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from fairkit.errors import ParameterError, did_you_mean

KEYS = ("decision", "score", "probability", "class", "prediction", "answer", "favorable")
"""What can be said about a table's predictions."""

_NEXT = re.compile(rf",(?=(?:{'|'.join(KEYS)})(?::[^=]*)?=)")
_EXAMPLE = "decision=approved,score=p"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRoles:
    """Which columns hold predictions."""

    decision: str | None = None  # binary decisions
    score: str | None = None  # the probability of the favorable label, or the predicted number of a regression
    probability: str | None = None  # the chance of the favorable decision, for decisions that are drawn
    predicted_class: str | None = None  # the predicted class
    prediction: str | None = None  # the predicted number
    answer: str | None = None
    favorable: Any = None
    class_probabilities: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plain = (self.decision, self.score, self.probability, self.predicted_class)
        if not self.columns:
            raise ParameterError(
                f"name a column of decisions, scores, classes or numbers in `predictions`, as in {_EXAMPLE}"
            )
        if self.decision is not None and self.probability is not None:
            raise ParameterError("name a column of decisions or of decision probabilities, not both")
        if self.prediction is not None and (any(plain) or self.class_probabilities):
            raise ParameterError(
                "`predictions` has predicted numbers (prediction) and decisions, scores or classes: name one kind"
            )
        if self.answer is not None and (any(plain) or self.class_probabilities or self.prediction):
            raise ParameterError("`predictions` has answers and something else: answers are audited alone")
        by_class = self.predicted_class is not None or bool(self.class_probabilities)
        if by_class and (self.decision is not None or self.probability is not None):
            raise ParameterError("`predictions` has classes and decisions: name one of the two")
        if self.class_probabilities and self.score is not None:
            raise ParameterError("`predictions` has a score and probabilities by class: name one of the two")
        if self.favorable is not None and self.decision is None and self.score is None:
            raise ParameterError("`predictions` has a favorable value but no column of decisions that holds it")

    @property
    def columns(self) -> tuple[str, ...]:
        """The named columns, each once."""
        named = (self.decision, self.score, self.probability, self.predicted_class, self.prediction, self.answer)
        every = [*(column for column in named if column), *self.class_probabilities.values()]
        return tuple(dict.fromkeys(every))

    @property
    def noted(self) -> tuple[str, ...]:
        """The columns whose distinct values must be known before rows are read."""
        return tuple(column for column in (self.decision, self.predicted_class) if column is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return the form of a configuration file, without what was not said."""
        named = {
            "decision": self.decision,
            "score": self.score,
            "probability": dict(self.class_probabilities) or self.probability,
            "class": self.predicted_class,
            "prediction": self.prediction,
            "answer": self.answer,
            "favorable": self.favorable,
        }
        return {key: value for key, value in named.items() if value is not None}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` writes."""
        for key, value in record.items():
            if key not in KEYS:
                raise ParameterError(f"`predictions` has no key {key!r}. {did_you_mean(key, KEYS, what='keys')}")
            listed = key == "probability" and isinstance(value, Mapping)
            if not (listed or key == "favorable" or isinstance(value, str)):
                raise ParameterError(f"`predictions`: {key} takes the name of a column, not {value!r}")
        chance = record.get("probability")
        by_class = chance if isinstance(chance, Mapping) else {}
        return cls(
            **{key: value for key, value in record.items() if key not in ("class", "probability")},
            probability=None if isinstance(chance, Mapping) else chance,
            predicted_class=record.get("class"),
            class_probabilities={str(label): str(column) for label, column in by_class.items()},
        )

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Read ``decision=approved,score=p`` and, by class, ``class=tier,probability:gold=p_gold``."""
        record: dict[str, Any] = {}
        for part in (part for text in texts for part in _NEXT.split(text)):
            name, equals, column = part.partition("=")
            key, colon, label = name.strip().partition(":")
            if not equals or not column or (colon and (key != "probability" or not label)):
                raise ParameterError(
                    f"`predictions`: {part!r} is not understood; write KEY=COLUMN, as in {_EXAMPLE}, and "
                    "probability:CLASS=COLUMN for the probability of a class"
                )
            if colon:
                here = record.setdefault(key, {})
                taken = not isinstance(here, dict) or label in here
            else:
                here, label, taken = record, key, key in record
            if taken:
                raise ParameterError(f"`predictions` says {name.strip()} twice; say it once")
            here[label] = column
        return cls.of(record)
