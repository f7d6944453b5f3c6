"""Which value of an outcome is good for the person, as far as its name and its values say."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fairkit.data.roles import value_text

_GOOD = frozenset({
    "accept", "accepted", "admit", "admitted", "approve", "approved", "eligible", "fulfilled", "good", "grant",
    "granted", "healthy", "hire", "hired", "invited", "paid", "pass", "passed", "promoted", "qualified", "released",
    "repaid", "retained", "selected", "stayed", "success", "successful", ">50k",
})  # fmt: skip
_BAD = frozenset({
    "arrears", "arrest", "arrested", "attrition", "bad", "bankrupt", "bankruptcy", "charged", "chargeoff", "churn",
    "churned", "decline", "declined", "default", "defaulted", "delinquency", "delinquent", "denied", "deny", "died",
    "disease", "dismissed", "dropout", "fail", "failed", "failure", "fired", "fraud", "fraudulent", "left", "loss",
    "mortality", "readmitted", "recid", "recidivism", "refuse", "refused", "reject", "rejected", "reoffend",
    "reoffended", "rearrest", "rearrested", "terminated", "unpaid", "violation",
})  # fmt: skip
_YES, _NO = frozenset({"1", "true", "yes", "y", "t"}), frozenset({"0", "false", "no", "n", "f"})
_NEGATED = frozenset({"no", "non", "not"})


def good_value(name: str, values: Sequence[object]) -> str | None:
    """Return the value that is good for the person; None where neither the name nor the values say so.

    Words decide: ``approved`` is good; of yes and no (also 1 and 0) it is yes for a column called ``hired``, no for
    one called ``default``, and nobody knows for one called ``y``.
    """
    texts = [value_text(value) for value in values]
    by_word = [text for text in texts if _sense(text) is True]
    if len(by_word) == 1:
        return by_word[0]
    sense = _sense(name)
    flags = {text: _flag(text) for text in texts}
    if sense is None or len(texts) != 2 or set(flags.values()) != {True, False}:
        return None
    return next(text for text, flag in flags.items() if flag is sense)


def is_outcome(name: str) -> bool:
    """Return whether a column's name is that of an outcome, good or bad."""
    return _sense(name) is not None


def example_of(name: str, values: Sequence[object]) -> str:
    """Return a favorable value for a message's example: the good one where it is known, else ``VALUE``."""
    return good_value(name, values) or "VALUE"


def _flag(text: str) -> bool | None:
    lower = text.lower()
    return True if lower in _YES else False if lower in _NO else None


def _sense(text: str) -> bool | None:
    """Return whether the words of a text are good or bad for a person; None where they are neither or both."""
    words = re.findall(r">?[a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())
    negated = bool(words) and words[0] in _NEGATED
    good, bad = any(word in _GOOD for word in words), any(word in _BAD for word in words)
    if good == bad:
        return None
    return good != negated
