"""What goes wrong because of the input: one base class, one clear message each."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FairkitError(Exception):
    """The base of every error that fairkit raises on purpose.

    The message says what is wrong, where, and how to fix it. The command line prints it
    as it stands and exits with 2. Any other exception that reaches the user is a bug.
    """


class DataError(FairkitError, ValueError):
    """A table that cannot be used: missing, unreadable, or without what its roles name."""


class ModelError(FairkitError, ValueError):
    """A model that cannot be loaded or run, or whose outputs cannot be interpreted."""


class RenamedWarning(FutureWarning):
    """A former name or value was used; it works until the next minor version."""


class ParameterError(FairkitError, ValueError):
    """A parameter of an auditor, a mitigator or a command that is unknown or out of range."""


class PolicyError(FairkitError, ValueError):
    """A policy rule that cannot be applied."""


class PowerError(PolicyError):
    """A policy that the test rows cannot decide: not even a model without any disparity would pass."""


class ConfigError(FairkitError, ValueError):
    """A `fairkit.toml` that cannot be read or has unknown keys."""


class EngineError(FairkitError, RuntimeError):
    """A cluster that cannot be reached or used, or workers that were lost."""


class RowsNeededError(EngineError):
    """Totals that a database cannot count: the rows must be read."""


class PluginError(FairkitError, ImportError):
    """A plugin that is unknown, does not load, or breaks its contract."""


class MissingExtraError(PluginError):
    """A library that comes with an extra of fairkit and is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed; fix it with: pip install 'fairkit[{extra}]'")
        self.library, self.extra = library, extra

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        return type(self), (self.library, self.extra)


def did_you_mean(name: str, choices: Iterable[str], *, what: str = "") -> str:
    """Say which of the choices is near the name, else list them.

    `name`: what the user wrote; `choices`: what would have been understood; `what`: plural noun for the list, such as
    ``"columns"``; returns a sentence that ends a message: ``"Did you mean 'sex'?"`` or ``"The columns are: age,
    sex."``.
    """
    candidates = sorted(set(choices))
    if what == "columns" and len(candidates) == 1:  # the first line of a file that is no table, and may be a secret
        return "There is one column; is this file a table?"
    near = difflib.get_close_matches(name, candidates, n=3, cutoff=0.6)
    near = near or [choice for choice in candidates if _alike(name.lower(), choice.lower()) >= 0.6][:3]
    near = [choice for choice in near if _alike(name, choice) > _alike(name, near[0]) - 0.1]
    if near:
        return "Did you mean " + " or ".join(repr(choice) for choice in near) + "?"
    shown = ", ".join(candidates[:12]) + (f", ... ({len(candidates)} in all)" if len(candidates) > 12 else "")
    noun = what or "choices"
    return f"The {noun} are: {shown}." if candidates else f"There are no {noun}."


def _alike(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()
