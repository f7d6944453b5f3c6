"""Checks on sources of models: a name that can stand in a certificate, and messages in place of what Python raises."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fairkit.errors import FairkitError
from fairkit_testing.require import require

if TYPE_CHECKING:
    from fairkit.models.sources import ModelSource


def check_model_source_name(cls: type[ModelSource]) -> None:
    """`name` is of small letters, digits and hyphens: it is a key in certificates."""
    fits = re.fullmatch(r"[a-z][a-z0-9-]*", cls.name) is not None
    require(fits, f"name is {cls.name!r}; it is of small letters, digits and hyphens")


def check_model_source_refuses_an_empty_record(cls: type[ModelSource]) -> None:
    """`open` refuses a record without what it needs with a message: a derived class of `fairkit.FairkitError`."""
    try:
        cls.open({})
    except FairkitError:
        return
    except Exception as error:
        require(False, f"open raises {type(error).__name__} for an empty record; raise a fairkit.ModelError")
    require(False, "open takes an empty record; refuse it with a message that says what is needed")


CHECKS = (check_model_source_name, check_model_source_refuses_an_empty_record)
