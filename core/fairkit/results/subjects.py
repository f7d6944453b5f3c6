"""What a report is about: the model and the data, as far as a report says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from fairkit.support.records import read_record, record_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The audited model: its name, the SHA-256 of its bytes (None for an object in memory), its task.

    `outputs` says which of its outputs were audited: ``score`` and ``decision`` are names (or None), and
    ``threshold`` and ``rule``, the comparison with it as it runs (``pd <= 0.2``), are there where scores decide,
    ``turned`` where the score is one minus the output, and ``favorable`` says which value of a column of decisions is
    the favorable one. `endpoint` is there where a server answered: ``url``, ``model``, ``version``, ``platform``, and
    the digest of the model's metadata.
    `predictions` says which columns of the table were audited where there was no model; empty where there was one.
    `serving` has what is known of the model as it is served: ``rows`` (whether the file is plain, and its rows are
    shown to stay apart), ``probed`` (what other batches, orders, threads and no optimisation gave), ``outputs`` and
    ``inputs`` that were not audited or fed; empty in older reports.
    """

    name: str
    sha256: str | None
    task: str
    notes: tuple[str, ...] = ()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    endpoint: Mapping[str, Any] = field(default_factory=dict)
    predictions: Mapping[str, Any] = field(default_factory=dict)
    serving: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unseen(self) -> bool:
        """Whether no model file was seen: a table or its predictions were audited, or a server's answers."""
        return bool(self.predictions or self.endpoint) or self.task == "table"

    @property
    def as_served(self) -> str:
        """What is known of a file in other batches and other ways to run it; empty where nobody looked."""
        rows, probed = self.serving.get("rows", {}), self.serving.get("probed", {})
        if "rows_apart" not in rows or not probed:
            return ""
        shown = "shown" if rows["rows_apart"] else f"not shown ({rows.get('because')})"
        return (
            f"that rows of a batch stay apart is {shown}; probed: {probed['differ']:,} of the first "
            f"{probed['rows']:,} rows are decided otherwise in other batches, orders and numbers of threads, with and "
            "without graph optimisation"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        always, called = ("name", "sha256", "task", "notes"), {"predictions": "columns"}
        return {called.get(key, key): value for key, value in record_of(self).items() if key in always or value}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return read_record(cls, {**record, "predictions": record.get("columns", {})})


@dataclass(frozen=True, slots=True, kw_only=True)
class DataInfo:
    """The audited data: its name, content digest, rows used, rows left out, and the groups' sizes.

    `missing` counts, by sensitive column, the used rows that are in no group because their value is missing. `weights`
    is the column of sample weights; None where all rows count the same. `joined` says which other table gave columns:
    name, sha256, on, columns, rows, used, matched and unmatched; empty where none did. `label` and `favorable` are the
    outcome column and its favorable value, as text. `columns` are the table's columns with type and missing cells,
    `more_columns` counts those that are not listed, and `period` says from which month to which the rows are, by which
    column; empty where no column or more than one has dates. `clusters` has the column of ids and their number
    (`column`, `count`) where rows of one id depend on each other; it is empty where rows are independent.
    `source` says where a table is that an address named: kind, address, and what tells its version; empty for a file or
    a table in memory.
    """

    name: str
    sha256: str
    rows: int
    dropped_rows: int  # without a weight
    groups: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict)
    weights: str | None = None
    joined: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None
    favorable: str | None = None
    columns: tuple[Mapping[str, Any], ...] = ()
    more_columns: int = 0
    period: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    unlabelled_rows: int = 0  # of the rows used: without a label, hence only in numbers that need none

    @property
    def lacking(self) -> str:
        """What rows lack, in words that follow their number; empty where they lack nothing."""
        told = ((self.dropped_rows, "left out without a weight"), (self.unlabelled_rows, "of them without a label"))
        return "".join(f", {count:,} {what}" for count, what in told if count)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        always = ("name", "sha256", "rows", "dropped_rows", "groups", "notes")
        return {key: value for key, value in record_of(self).items() if key in always or value not in (None, 0, [], {})}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return read_record(cls, record)


def subject_record(model: ModelInfo) -> dict[str, Any]:
    """Return the audited subject: the model, or, where there was none, the table's predictions."""
    if model.predictions or model.task == "table":
        return {"model": None, "predictions": {**model.to_dict(), "columns": dict(model.predictions)}}
    return {"model": model.to_dict()}


def read_subject(record: Mapping[str, Any]) -> ModelInfo:
    """Read what `subject_record` wrote: a model has no columns, predictions and endpoints have no digest."""
    if record["model"] is None:
        return replace(ModelInfo.from_dict(record["predictions"]), sha256=None)
    model = replace(ModelInfo.from_dict(record["model"]), predictions={})
    return replace(model, sha256=None) if model.endpoint else model
