"""What can be set with --set all-inputs.KEY=VALUE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairkit.parameters.declare import parameter
from fairkit_similarity.subspace import directions_parameter, strength_parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What can be set with --set all-inputs.KEY=VALUE."""

    columns: tuple[str, ...] = parameter(
        (), help="Columns that change, all of them together; by default the sensitive ones that the model reads."
    )
    values: tuple[str, ...] = parameter(
        (),
        help="The values that they change between, of several columns joined by +, as Husband+Male,Wife+Female; "
        "default: all that the data has.",
    )
    domain: Mapping[str, Any] = parameter(
        {},
        help="What another column may be, as all-inputs.domain.age=17:90 or all-inputs.domain.job=A,B; default: the "
        "data's range of numbers, and the values of the model's encoder or of the data.",
    )
    one_hot: bool = parameter(
        True, help="Whether 0-1 columns with a common beginning, of which each row has exactly one, go together."
    )
    near: float | None = parameter(
        None,
        help="Only inputs within this squared distance of one of the people: standardised numbers, 2 for another "
        "category (1 where there are two).",
        minimum=0,
    )
    fair_metric: str | None = parameter(
        None,
        help="The distance of near: a file with a saved fair metric, or subspace, which is learned as by "
        "restricted-dro; default: standardised numbers.",
    )
    strength: float = strength_parameter()
    directions: tuple[str, ...] | None = directions_parameter()
    people: int = parameter(
        1_000, help="So many people of the data, drawn at random, are looked at for flippable and for near.", minimum=1
    )
    boxes: int = parameter(200_000, help="How many boxes each question may split.", minimum=1)
    seconds: float | None = parameter(
        None,
        help="How long the audit may take, the search's compilation included, besides running the rows once more; "
        "default: no limit but boxes: equal inputs give equal bounds.",
        above=0,
    )
    save_proof: str | None = parameter(
        None,
        help="A JSON file for the cells of trees and the proof logs, for an independent checker; with near "
        "it holds what is near to whom, so keep it as the data. Whoever recomputes a certificate reads it there.",
    )
