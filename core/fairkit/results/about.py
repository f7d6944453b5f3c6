"""Facts about what was audited that no number follows from: what the model is for, who owns it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fairkit.errors import ParameterError

KNOWN: Mapping[str, str] = {
    "intended_use": "Intended use",
    "owner": "Owner",
    "contact": "Contact",
    "version": "Version",
    "period": "Period of the data",
    "date": "Date of the audit",
}
"""The facts that a page names by a heading of their own; others are shown under their name."""

LONGEST = 2000
"""Characters of one fact."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def facts_of(about: Mapping[str, str]) -> dict[str, str]:
    """Check facts and return them."""
    for name, text in about.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ParameterError(
                f"`about` names {name!r}; a fact's name is of small letters, digits and _, as in intended_use"
            )
        if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
            raise ParameterError(f"`about` {name!r} takes a text of 1 to {LONGEST:,} characters")
    return dict(about)


def heading(name: str) -> str:
    """Return a fact's heading on a page: ``Intended use`` for intended_use."""
    return KNOWN.get(name) or name.replace("_", " ").capitalize()
