"""How the rows with a known outcome were chosen: a drawn list, at random, with known probabilities, or selectively."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.support.escaping import listed_names
from fairkit.support.files import read_small
from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch

SCHEMA = "fairkit.drawn/1"
"""What a file of drawn rows says of itself."""

KINDS = ("random", "probability", "by", "selective")
_HOW = "it is a file of `fairkit plan --draw`, random, probability=COLUMN, by=COLUMN,COLUMN, or selective"
NO_BETTER = "no-better"

Kind = Literal["list", "random", "probability", "by", "selective"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Which rows have a known outcome, and why these.

    Parameters
    ----------
    design
        ``"random"``: every row had the same chance. ``"probability=COLUMN"``: its chance is in a column.
        ``"by=COLUMN,COLUMN"``: at random among the rows with the same values of these. ``"selective"``: nobody drew
        them, as where only accepted people repay; nothing is supposed about the others. Else a file of
        ``fairkit plan --draw``, or its content as a mapping.
    refused
        ``"no-better"`` supposes that refused people have no larger share of favorable outcomes than selected ones.

    Raises
    ------
    ParameterError
        The design is none of these.
    """

    design: str | Mapping[str, Any]
    refused: str | None = None
    kind: Kind = field(init=False)
    columns: tuple[str, ...] = field(init=False, default=())
    rows: NDArray[np.int64] = field(init=False, repr=False, compare=False)  # drawn rows of a list, in order
    shares: NDArray[np.float64] = field(init=False, repr=False, compare=False)  # and their probabilities

    def __post_init__(self) -> None:
        if self.refused not in (None, NO_BETTER):
            raise ParameterError(f"refused={self.refused!r} is not understood; it is {NO_BETTER}")
        design = self.design
        if isinstance(design, str | Path):
            kind, equals, rest = str(design).partition("=")
            columns = tuple(listed_names(rest))
            wanted = {"probability": (1, 1), "by": (1, 9)}.get(kind, (0, 0))
            if kind in KINDS and wanted[0] <= len(columns) <= wanted[1] and bool(equals) == bool(columns):
                self._set(str(design), kind, columns)
                return
            if kind in KINDS:
                raise ParameterError(f"`labelled` {str(design)!r} is not understood; {_HOW}")
            design = _read(Path(design))
        self._set(_checked(design), "list", ())

    def _set(self, design: Any, kind: str, columns: Sequence[str]) -> None:
        listed = [] if kind != "list" else list(design["cells"])
        drawn = [np.array([] if self._is_count(cell) else cell["drawn"], dtype=np.int64) for cell in listed]
        rows = np.concatenate([np.empty(0, dtype=np.int64), *drawn])
        share = np.concatenate(
            [np.empty(0), *(np.full(len(r), len(r) / cell["rows"]) for r, cell in zip(drawn, listed, strict=True))]
        )
        order = np.argsort(rows, kind="stable")
        for name, value in {
            "design": design, "kind": kind, "columns": tuple(columns), "rows": rows[order], "shares": share[order],
        }.items():  # fmt: skip
            object.__setattr__(self, name, value)

    @staticmethod
    def _is_count(cell: Mapping[str, Any]) -> bool:
        return isinstance(cell["drawn"], int)

    @property
    def recorded(self) -> bool:
        """Whether a list has the numbers of drawn rows alone, as certificates keep it: it is then drawn again."""
        return isinstance(self.design, Mapping) and any(map(self._is_count, self.design["cells"]))

    def __hash__(self) -> int:
        return hash((self.kind, self.columns, self.refused, self.digest))

    @property
    def sensitive(self) -> str | None:
        """The sensitive column inside whose groups, by decision, a list was drawn."""
        return str(self.design["sensitive"]) if isinstance(self.design, Mapping) else None

    @property
    def no_better(self) -> bool:
        """Whether refused people are supposed to be no better than selected ones."""
        return self.refused == NO_BETTER

    @property
    def digest(self) -> str | None:
        """The SHA-256 of the list of drawn rows; None without a list."""
        if self.kind != "list":
            return None
        return hashlib.sha256(" ".join(map(str, self.rows.tolist())).encode()).hexdigest()

    @classmethod
    def of(cls, value: Any) -> Drawn:
        """Return what `to_dict` wrote, a design, or text as one."""
        if isinstance(value, Drawn):
            return value
        if isinstance(value, Mapping) and set(value) <= {"design", "refused"} and "design" in value:
            return cls(value["design"], value.get("refused"))
        return cls(value)

    def to_dict(self) -> dict[str, Any]:
        """Return the form of a certificate's settings: of a list the numbers of its rows, so that it is drawn again."""
        design: Any = self.design
        if isinstance(design, Mapping):
            counts = [{**c, "drawn": c["drawn"] if self._is_count(c) else len(c["drawn"])} for c in design["cells"]]
            design = {**design, "cells": counts}
        record: dict[str, Any] = {"design": design}
        return record | ({} if self.refused is None else {"refused": self.refused})

    def told(self) -> dict[str, Any]:
        """Return what a report says of the design: kind, columns or seed, stages, cells and the list's digest."""
        record: dict[str, Any] = {"kind": self.kind}
        if self.columns:
            record["columns"] = list(self.columns)
        if isinstance(self.design, Mapping):
            names = ("seed", "population", "sensitive", "for", "stages", "cells")
            record |= {name: self.to_dict()["design"][name] for name in names} | {"list_sha256": self.digest}
        return record | ({"refused": self.refused} if self.refused else {})

    def asked(self, batch: Batch) -> tuple[NDArray[np.bool_] | None, NDArray[np.float64] | None]:
        """Return which rows a list asks for and each one's probability, shape [n]; None where there is no list."""
        if self.kind != "list":
            return None, None
        if self.recorded:
            raise ParameterError("this design has no rows: give the file that `fairkit plan --draw` wrote")
        at = np.searchsorted(self.rows, batch.rows)
        drawn = np.zeros(len(batch), dtype=bool)
        inside = at < len(self.rows)
        drawn[inside] = self.rows[at[inside]] == batch.rows[inside]
        chance = np.ones(len(batch))
        chance[drawn] = self.shares[at[drawn]]
        return drawn, chance

    def known(self, batch: Batch) -> tuple[NDArray[np.bool_], Batch]:
        """Return which rows have an outcome that the design asks for, and these, weighted by what each stands for."""
        keep = np.ones(len(batch), dtype=bool) if batch.labelled is None else batch.labelled
        keep = keep if batch.drawn is None else keep & batch.drawn
        chosen = batch.take(keep)
        if chosen.chance is None:
            return keep, chosen
        weights = 1.0 if chosen.weights is None else chosen.weights
        return keep, dataclasses.replace(chosen, weights=weights / chosen.chance)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        record = json.loads(read_small(path))
    except OSError as error:
        raise ParameterError(f"`labelled` {str(path)!r}: {error.strerror or error}; {_HOW}") from None
    except (ValueError, RecursionError):
        raise ParameterError(f"`labelled` {str(path)!r} is not JSON; {_HOW}") from None
    return record if isinstance(record, Mapping) else {}


def _checked(design: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse a file of drawn rows that is none."""
    try:
        if design["schema"] != SCHEMA:
            raise KeyError("schema")
        fields = {
            name: design[name] for name in ("schema", "seed", "population", "sensitive", "for", "stages", "cells")
        }
        counts = [cell["drawn"] for cell in fields["cells"] if type(cell["drawn"]) is int]
        listed = [cell["drawn"] for cell in fields["cells"] if type(cell["drawn"]) is list]
        numbers = [row for rows in listed for row in rows]
        fine = len(fields["cells"]) in (len(counts), len(listed))
        fine &= all(type(row) is int and row >= 0 for row in numbers) and len(set(numbers)) == len(numbers)
        fine &= type(fields["seed"]) is int and isinstance(fields["sensitive"], str)
        for cell in fields["cells"]:
            fine &= isinstance(cell["group"], str) and cell["decision"] in (0, 1) and type(cell["rows"]) is int
            fine &= 0 <= (cell["drawn"] if counts else len(cell["drawn"])) <= cell["rows"]
        if not fine or not (numbers or any(counts)):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise ParameterError(
            f"the file of drawn rows is not what `fairkit plan --draw` writes ({SCHEMA}), or it was changed; {_HOW}"
        ) from None
    return fields


def population_digest(names: Sequence[str], pairs: NDArray[np.int64]) -> str:
    """Return the SHA-256 of the group and the decision of every row in order, which needs no outcome.

    `pairs` is 2 * group + decision, -1 for rows without a group, shape [n].
    """
    head = json.dumps([*names], ensure_ascii=True).encode()
    return hashlib.sha256(head + pairs.astype("<i4").tobytes()).hexdigest()


def draw_order(seed: int, population: str, rows: Sequence[int] | NDArray[np.int64]) -> list[int]:
    """Return rows in the order in which they are drawn: by SHA-256 of seed, population digest and row number."""
    head = hashlib.sha256(f"{seed} {population} ".encode())

    def key(row: int) -> bytes:
        copied = head.copy()
        copied.update(str(row).encode())
        return copied.digest()

    return sorted((int(row) for row in rows), key=key)


def drawn_cells(
    names: Sequence[str], pairs: NDArray[np.int64], counts: NDArray[np.int64], seed: int, population: str
) -> list[dict[str, Any]]:
    """Return each group × decision with its rows and its first `counts` rows of the draw, shape [G, 2]."""
    cells = []
    for g, name in enumerate(names):
        for d in (0, 1):
            rows = np.flatnonzero(pairs == 2 * g + d)
            wanted = int(counts[g, d])
            chosen = draw_order(seed, population, rows)[:wanted] if wanted else []
            cells.append({"group": name, "decision": d, "rows": len(rows), "drawn": chosen})
    return cells


def check_cells(drawn: Drawn, names: Sequence[str], rows: NDArray[Any], asked: NDArray[Any], table: str) -> None:
    """Refuse a list of another table: its groups, decisions and drawn rows are others than these, shapes [G, 2]."""
    assert isinstance(drawn.design, Mapping)  # noqa: S101 -- callers look
    index = {name: g for g, name in enumerate(names)}
    seen = np.zeros((len(names), 2, 2))
    for cell in drawn.design["cells"]:
        if cell["group"] not in index:
            raise DataError(
                f"{table}: the drawn list has the group {cell['group']!r} of {drawn.sensitive!r}, which no row has: it "
                "is of another table; give the file that `fairkit plan --draw` wrote for this one"
            )
        seen[index[cell["group"]], cell["decision"]] = cell["rows"], len(cell["drawn"])
    for what, claimed, counted in (("rows", seen[..., 0], rows), ("drawn rows", seen[..., 1], asked)):
        if (claimed != counted).any():
            g, d = np.argwhere(claimed != counted)[0]
            raise DataError(
                f"{table}: the drawn list has {claimed[g, d]:,.0f} {what} of {drawn.sensitive} {names[g]} with "
                f"decision {d}, and the table has {counted[g, d]:,.0f}: it is of another table, another model or "
                "another order of the rows; give the file that `fairkit plan --draw` wrote for this one"
            )
