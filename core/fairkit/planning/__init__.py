"""Planning: how many rows decide a rule, and what an audit of a given size can see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.lazy_package import lazy_names

if TYPE_CHECKING:
    from fairkit.planning.advice import advised
    from fairkit.planning.results import Plan, RulePlan
    from fairkit.planning.run import plan

__all__ = ["Plan", "RulePlan", "advised", "plan"]

__getattr__, __dir__ = lazy_names(
    __name__, {"Plan": ".results", "RulePlan": ".results", "advised": ".advice", "plan": ".run"}
)
