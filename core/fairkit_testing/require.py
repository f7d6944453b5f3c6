"""How a check says that a contract is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from fairkit.errors import FairkitError


class ContractError(AssertionError):
    """A plugin does not do what its interface says; the message says what, where, and how to fix it."""


def require(condition: object, message: str) -> None:
    """Raise `ContractError` with the message unless the condition holds."""
    if not condition:
        raise ContractError(message)


@contextmanager
def unchanged(arrays: Callable[[], Mapping[str, Any]], where: str) -> Iterator[None]:
    """Run a block that must leave arrays as they are.

    Parameters
    ----------
    arrays
        Returns them by name, before and after.
    where
        What the message begins with, before the name.
    """
    before = {name: np.array(values) for name, values in arrays().items()}
    yield
    for name, values in arrays().items():
        old = before[name]
        same = (
            old.tolist() == values.tolist()
            if old.dtype.kind == "O"
            else np.array_equal(old, values, equal_nan=old.dtype.kind == "f")
        )
        require(same, f"{where}{name} was changed; work on a copy")


@contextmanager
def only_fairkit_errors(doing: str, *, required: bool = False) -> Iterator[None]:
    """Let a `FairkitError` pass quietly and turn any other exception into `ContractError`.

    Parameters
    ----------
    doing
        What was tried, for the message: "parameters of the wrong type were given".
    required
        Whether there must be an error.
    """
    try:
        yield
    except FairkitError as error:
        require(len(str(error)) > 10, f"{doing}: the error says nothing: {error!r}")
        return
    except Exception as error:
        raise ContractError(
            f"{doing}: it raised {type(error).__name__}: {error}. What users can cause is a FairkitError that "
            "says what is wrong and how to fix it"
        ) from error
    require(not required, f"{doing}: nothing was raised; this needs a FairkitError")
