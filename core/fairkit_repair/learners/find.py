"""Learners by name: the built-in ones, and those that plugins bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.errors import ParameterError, did_you_mean
from fairkit_repair.learners.boosted import LightGBM, XGBoost
from fairkit_repair.learners.classic import MLP, Forest, Linear, Logistic
from fairkit_repair.learners.sources import brought

if TYPE_CHECKING:
    from fairkit.data.task import Task
    from fairkit.learners import Learner

BUILT_IN: dict[str, type[Learner]] = {
    one.name: one for one in (LightGBM, XGBoost, Logistic, Linear, Forest, MLP)
}
LEARNERS = tuple(BUILT_IN)
"""The built-in learners' names. ``logistic`` is for classes, ``linear`` for regression, the others for all tasks."""
INSTALLED = "*"
"""Stands in a method's `learners` for whatever learners plugins bring."""


def find_learner(name: str, task: Task | None = None) -> type[Learner]:
    """Return a learner's class by its name.

    Raises
    ------
    ParameterError
        There is none, several plugins bring one of that name, or it is for other tasks.
    """
    if name in BUILT_IN:
        found = [BUILT_IN[name]]
    else:
        others = brought()
        found = [learner for learner in others if learner.name == name]
        if not found:
            names = [*LEARNERS, *(learner.name for learner in others)]
            raise ParameterError(
                f"there is no learner {name!r}. {did_you_mean(name, names, what='learners')}"
            )
        if len(found) > 1:
            modules = " and ".join(sorted(learner.__module__ for learner in found))
            raise ParameterError(
                f"several plugins bring a learner {name!r}: {modules}; uninstall all but one"
            )
    if task is not None and task not in found[0].tasks:
        raise ParameterError(_other_task(found[0], task))
    return found[0]


def _other_task(learner: type[Learner], task: Task) -> str:
    if learner is Linear:
        return "the learner 'linear' predicts numbers; for classes use 'logistic'"
    if learner is Logistic:
        return "the learner 'logistic' predicts classes; for numbers use 'linear'"
    return f"the learner {learner.name!r} is for {' and '.join(learner.tasks)} tasks, not for a {task} one"
