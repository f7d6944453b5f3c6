"""Laws: how trainings are drawn, declared in full before any is made."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.errors import ParameterError, did_you_mean
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass, field, fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.table import Table

SENSITIVE = "sensitive"
"""Stands among the columns that a law leaves out for the sensitive ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """How trainings are drawn.

    Attributes
    ----------
    name
        For messages and results.
    learner
        What trains.
    settings
        Of the learner's library, by name: a value; ``{"low": a, "high": b}``, whole where both are, and with
        ``"log": True`` on a logarithmic scale; or ``{"choose": [...]}``.
    reweigh
        ``{"low": a, "high": b}`` in [0, 1]: rows are weighted by 1 - λ + λ w with λ drawn, where w makes group and
        outcome independent (Kamiran & Calders 2012). None: as they are.
    without
        Columns that no draw reads; ``sensitive`` stands for the sensitive ones.
    bootstrap
        Whether each draw learns from rows drawn anew with replacement.
    draws
        How many there are; None: as many as the search asks for.
    """

    name: str
    learner: str = "lightgbm"
    settings: Mapping[str, Any] = field(default_factory=dict)
    reweigh: Mapping[str, float] | None = None
    without: tuple[str, ...] = ()
    bootstrap: bool = False
    draws: int | None = None

    @classmethod
    def named(cls, name: str) -> Self:
        """Return a law that has a name: bootstrap, reweigh, seeds, settings."""
        laws = built_in()
        if name not in laws:
            raise ParameterError(f"there is no law {name!r}. {did_you_mean(name, laws, what='laws')}")
        return cls.from_dict(name, laws[name])

    @classmethod
    def from_dict(cls, name: str, record: Any) -> Self:
        """Read a law of a TOML file.

        Raises
        ------
        ParameterError
            An entry is not known, or is no distribution.
        """
        if not isinstance(record, Mapping):
            raise ParameterError(f"the law {name!r} is no table; write [{name}] with learner and settings below it")
        names = [one.name for one in fields(cls) if one.name != "name"]
        for key in record:
            if key not in names:
                raise ParameterError(f"the law {name!r}: {key!r} is not known. {did_you_mean(key, names, what='keys')}")
        settings = record.get("settings", {})
        if not isinstance(settings, Mapping):
            raise ParameterError(f"the law {name!r}: settings are a table, as [{name}.settings]")
        for key, value in {**settings, **({"reweigh": record["reweigh"]} if "reweigh" in record else {})}.items():
            _check(f"the law {name!r}: {key}", value, must_vary=key == "reweigh")
        draws, without = record.get("draws"), record.get("without", ())
        if draws is not None and (isinstance(draws, bool) or not isinstance(draws, int) or draws < 1):
            raise ParameterError(f"the law {name!r}: draws = {draws!r} is no whole number from 1 on")
        if isinstance(without, str) or not all(isinstance(name, str) for name in without):
            raise ParameterError(f'the law {name!r}: without is a list of columns, as ["sex"]')
        if not isinstance(record.get("bootstrap", False), bool):
            raise ParameterError(f"the law {name!r}: bootstrap is true or false")
        return cls(**{**record, "name": name, "settings": dict(settings), "without": tuple(without)})

    def to_dict(self) -> dict[str, Any]:
        """Return what is declared, as JSON values."""
        return record_of(self)

    def features(self, table: Table) -> tuple[str, ...]:
        """Return the columns that its draws read."""
        left_out = set(self.without) - {SENSITIVE}
        unknown = sorted(left_out - set(table.columns))
        if unknown:
            hint = did_you_mean(unknown[0], table.columns, what="columns")
            raise ParameterError(f"the law {self.name!r} leaves out {unknown[0]!r}, which is no column. {hint}")
        if SENSITIVE in self.without:
            left_out |= sensitive_columns(table)
        kept = tuple(name for name in table.features if name not in left_out)
        if not kept:
            raise ParameterError(f"the law {self.name!r} leaves no column to learn from")
        return kept

    def draw(self, train_sha256: str, number: int) -> Draw:
        """Return draw `number`: its seed is a digest of the training rows, the whole law and the number.

        So nobody chooses a seed, and another N is another law, all of whose draws are others.
        """
        seed_text = json.dumps([train_sha256, self.to_dict(), number], sort_keys=True)
        digest = hashlib.sha256(seed_text.encode()).digest()
        seed = int.from_bytes(digest[:4], "big") >> 1
        rng = np.random.default_rng(list(digest))
        settings = {key: _value(value, rng) for key, value in self.settings.items()}
        strength = 0.0 if self.reweigh is None else float(_value(self.reweigh, rng))
        return Draw(seed=seed, settings=settings, strength=strength)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One training of a law."""

    seed: int
    settings: Mapping[str, Any]
    strength: float  # λ of reweighing


@cache
def built_in() -> Mapping[str, Mapping[str, Any]]:
    """Return the laws that have a name."""
    import tomllib

    return tomllib.loads((files("fairkit_alternatives") / "laws.toml").read_text(encoding="utf-8"))


def read_laws(text: str, where: str) -> tuple[Law, ...]:
    """Read a TOML file of laws."""
    import tomllib

    try:
        record = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(f"{where} is no TOML: {error}") from error
    if not record:
        raise ParameterError(f"{where} declares no law; write [NAME] with learner and settings below it")
    return tuple(Law.from_dict(name, entry) for name, entry in record.items())


def sensitive_columns(table: Table) -> set[str]:
    """Return the raw columns behind the groups."""
    return {column for group in table.groups.values() if group.split is not None for column in group.split.columns}


def independent_weights(
    codes: NDArray[np.int64], labels: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the factors that make group and label independent (Kamiran & Calders 2012, algorithm 3).

    A row of group g with label y gets W(g) W(y) / (W W(g, y)), where W(·) sums the given weights: what was to be
    expected under independence, over what is there.
    """
    cells = np.zeros((int(codes.max()) + 1, int(labels.max()) + 1))
    np.add.at(cells, (codes, labels), weights)
    expected = np.outer(cells.sum(axis=1), cells.sum(axis=0)) / cells.sum()
    factors = np.divide(expected, cells, out=np.zeros_like(cells), where=cells > 0)
    return np.asarray(factors[codes, labels])


def _check(where: str, value: Any, *, must_vary: bool) -> None:
    if isinstance(value, Mapping):
        keys = set(value)
        if keys == {"choose"} and not must_vary and isinstance(value["choose"], Sequence) and value["choose"]:
            return
        ends: list[Any] = [value.get("low"), value.get("high")]
        numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends)
        if keys <= {"low", "high", "log"} and numbers and ends[0] <= ends[1]:
            if value.get("log") and ends[0] <= 0:
                raise ParameterError(f"{where}: a logarithmic scale starts above 0")
            if must_vary and (ends[0] < 0 or ends[1] > 1):
                raise ParameterError(f"{where}: it lies between 0 and 1")
            return
    elif not must_vary and isinstance(value, str | int | float | bool):
        return
    raise ParameterError(f"{where} = {value!r} is no value, {{low, high}} with or without log, or {{choose = [...]}}")


def _value(declared: Any, rng: np.random.Generator) -> Any:
    """Draw a value."""
    if not isinstance(declared, Mapping):
        return declared
    if "choose" in declared:
        return declared["choose"][int(rng.integers(len(declared["choose"])))]
    low, high = declared["low"], declared["high"]
    if isinstance(low, int) and isinstance(high, int):
        if declared.get("log"):  # even between the logarithms of low and high + 1
            return min(high, int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))))
        return int(rng.integers(low, high + 1))
    if declared.get("log"):
        return float(math.exp(rng.uniform(math.log(low), math.log(high))))
    return float(rng.uniform(low, high))
