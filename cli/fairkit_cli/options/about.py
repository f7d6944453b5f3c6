"""The facts that a report states as its makers say them: what the model is for, who owns it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from fairkit.errors import ParameterError
from fairkit_cli.config import FACTS, Config
from fairkit_cli.options.declare import Rare

About = Annotated[
    list[str] | None,
    Rare("about.*", "A fact that the report states as you say it: about.intended_use, about.owner, about.period."),
]


def stated_facts(typed: Sequence[str] | None, config: Config, *, dated: bool) -> dict[str, str]:
    """Return the facts: what was typed wins over the configuration file."""
    from fairkit.results.about import facts_of

    facts = {**config.about, **{key: str(config.model[key]) for key in FACTS if key in config.model}}
    typed_facts: dict[str, str] = {}
    for text in typed or ():
        name, equals, value = text.partition("=")
        if not equals or name in typed_facts:
            raise ParameterError(
                f"--set about.{text} gives {name!r} twice"
                if equals
                else f"--set about.{text} is not understood; write about.NAME=TEXT, as in --set about.owner=Lending"
            )
        typed_facts[name] = value
    facts |= typed_facts
    if dated and "date" not in facts:
        facts["date"] = today()
    return facts_of(facts)


def today() -> str:
    """Return the day in UTC as 2026-01-31; that of SOURCE_DATE_EPOCH (seconds since 1970) where it is set."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(given), UTC) if given.isdecimal() else datetime.now(UTC)
    return moment.date().isoformat()
