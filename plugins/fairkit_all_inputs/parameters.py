"""What can be set with --set all-inputs.KEY=VALUE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairkit.parameters.declare import parameter


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
    people: int = parameter(
        1_000, help="So many people of the data, drawn at random, are looked at for flippable.", minimum=1
    )
    boxes: int = parameter(200_000, help="How many boxes each question may split.", minimum=1)
    seconds: float | None = parameter(
        None,
        help="How long the audit may take, the search's compilation included, besides running the rows once more; "
        "default: no limit but boxes: equal inputs give equal bounds.",
        above=0,
    )
    save_proof: str | None = parameter(
        None, help="A JSON file for the cells of trees and the proof logs, for an independent checker."
    )
