"""The parameters of every auditor over similar people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fairkit.parameters.declare import parameter
from fairkit_similarity.subspace import directions_parameter, strength_parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportParameters:
    """What every auditor over similar people takes."""

    epsilon: tuple[float, ...] = parameter(
        (0.1,), help="How far people may move, mean squared fair distance; several give the curve.", minimum=0
    )
    fair_metric: str = parameter(
        "subspace",
        help="The distance between people: subspace, euclidean, or the file of a saved fair metric.",
        former={"metric": 1},
    )
    strength: float = strength_parameter()
    directions: tuple[str, ...] | None = directions_parameter()
    penalty: Literal["mean", "summed"] = parameter(
        "mean",
        help="What strength weighs against: the mean loss; summed is the subspace of certificates that do not "
        "name a strength, always .1 against the summed loss.",
    )
    columns: tuple[str, ...] = parameter((), help="The metric's columns; by default those the model reads.")
    queries: int | None = parameter(
        None, help="How many sampled rows to ask; by default all up to 250,000, else 50,000.", minimum=1
    )
    support: int | None = parameter(
        None, help="How many people may be replacements: a random sample of that size; by default all.", minimum=30
    )
    pairs: int = parameter(5, help="How many pairs of people to show.", minimum=0)
    save_metric: str | None = parameter(None, help="A file to save the fair metric to.")
