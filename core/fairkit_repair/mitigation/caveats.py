"""What a user must see first after a mitigation: who is decided by chance, what the file reads, what got worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.metrics import field_names
from fairkit.plugins import installed_metrics
from fairkit_onnx.read.feeds import RANDOM_INPUT

if TYPE_CHECKING:
    from fairkit.data.table import Table
    from fairkit.fitted import FittedModel
    from fairkit.results.comparisons import Change
    from fairkit_onnx.model import OnnxModel


def is_randomized(fitted: FittedModel, model: OnnxModel) -> bool:
    """Return whether some decisions are drawn by chance.

    A rule on scores says so itself: its file has the input `u` also where all of its thresholds are sharp.
    """
    rule = fitted.details.get("rule")
    if isinstance(rule, Mapping) and "groups" in rule:
        pieces = [piece for group in rule["groups"] for piece in group["pieces"]]
        return any(piece["width"] > 0 or piece["weight"] not in (0, 1) for piece in pieces)
    return any(entry.name == RANDOM_INPUT for entry in model.inputs)


def sensitive_inputs(model: OnnxModel, table: Table) -> tuple[str, ...]:
    """Return the sensitive columns that the file reads; an input that is no column holds all features."""
    columns = dict.fromkeys(column for split in table.roles.sensitive for column in split.columns)
    inputs = {entry.name for entry in model.inputs}
    whole = bool(inputs - {*table.columns, RANDOM_INPUT})
    read = inputs | ({*(table.roles.features or table.features)} if whole else set())
    return tuple(column for column in columns if column in read)


def worsened(changes: Sequence[Change]) -> list[Change]:
    """Return the disparities that got significantly worse, the largest increase first, none under two names."""
    found = [one for one in changes if one.outcome == "worse" and one.sensitive is not None and one.group is None]
    names = {(one.metric, one.sensitive) for one in found}
    own = field_names(installed_metrics()[0])
    kept = [one for one in found if (own.get(one.metric), one.sensitive) not in names]
    return sorted(kept, key=lambda one: -abs(one.difference or 0.0))


def decisions_told(randomized: bool, reads: Sequence[str]) -> str:
    """Say how the file decides."""
    chance = (
        "RANDOMIZED: some decisions are drawn by chance. Give the input u a fresh number in [0, 1) for each person; "
        "the same person can be decided differently another time."
        if randomized
        else "Deterministic: the same person is always decided alike."
    )
    group = (
        f"GROUP-SPECIFIC: it reads {', '.join(reads)} to decide, which the law may forbid (ECOA, disparate treatment); "
        "a blind search does not."
        if reads
        else "It reads no sensitive column."
    )
    return f"{chance} {group}"


def record(randomized: bool, reads: Sequence[str], changes: Sequence[Change]) -> dict[str, Any]:
    """Return this as plain JSON values."""
    return {
        "decisions": {"randomized": randomized, "reads": list(reads)},
        "worsened": [one.to_dict() for one in worsened(changes)],
    }
