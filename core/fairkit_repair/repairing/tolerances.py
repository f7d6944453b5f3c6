"""Whether a method's tolerance can be chosen under a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.data.task import choose_task
from fairkit.errors import PolicyError
from fairkit.planning.run import installed
from fairkit.planning.targets import target_of
from fairkit_repair.mitigation.choose import find_mitigator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairkit.data.dataset import Dataset
    from fairkit.results.rules import Rule


def can_choose(plugin: str, policy: Sequence[Rule], parameters: Iterable[str], data: Dataset) -> bool:
    """Return whether a search can set the method's dial: it can meet a rule, and the user did not set it.

    Where outcomes are binary, every rule must be on a number that is made of rates: the chance of others cannot be
    predicted.
    """
    cls = find_mitigator(plugin)
    names = {key.partition(".")[0] for key in parameters}
    if any(one.dial in names for one in cls.capabilities):
        return False
    if not any(one.meets(rule.metric) for rule in policy for one in cls.capabilities):
        return False
    task = choose_task(data, None)
    if task not in cls.tasks:
        return False
    return task != "binary" or _all_of_rates(policy)


def _all_of_rates(policy: Sequence[Rule]) -> bool:
    metrics = installed()
    try:
        for rule in policy:
            target_of(rule.metric, metrics)
    except PolicyError:
        return False
    return True
