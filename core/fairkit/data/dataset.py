"""Tables with roles: read in batches, checked once, split into groups."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow_types import Batch, as_arrow, as_numpy, cells, decoded, equal_cells, present_rows
from fairkit.data.groups import probabilities_of
from fairkit.data.hashing import buckets_of, query_numbers
from fairkit.data.parts import Elsewhere
from fairkit.data.profile import BATCH_ROWS, Profile, Total, choose_bins, take_tally, total_here, widened
from fairkit.data.roles import Roles, Sensitive, require_columns, value_among, value_text
from fairkit.data.source import Source
from fairkit.errors import DataError
from fairkit.results.report import DataInfo
from fairkit.support.timings import ahead, each, phase, threads

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.duplicate_rows import DistinctRows
    from fairkit.data.groups import GroupCoder

__all__ = ["BATCH_ROWS", "Dataset", "Profile"]

LOOKED_THROUGH = 4 * BATCH_ROWS
"""So many rows at most are held while the first rows are looked for that are used."""


class Dataset:
    """A table with roles, made by `load_data`. It is read in batches and checked in the first pass.

    A row without a label is in the numbers that need none. One without a sensitive value belongs to no group
    of that column (unless missing values are kept as a group); group metrics of other columns use it.
    """

    def __init__(self, source: Source, roles: Roles) -> None:
        self.source = source
        self.roles = roles
        self._coders: dict[str, GroupCoder] = {}
        self._strata: dict[str, GroupCoder] = {}
        self._parts: list[GroupCoder] = []
        self._profile: Profile | None = None
        self._start = 0
        self._noted: tuple[str, ...] = ()
        self._counts_rows = False
        self._distinct: DistinctRows | None = None
        self.published: str | None = None
        """The content digest that the table should have, where its publisher's is known; another one is a note."""
        self.like: Any = None
        """The data frame that it was made of, without its rows; None for files. Models in memory get such frames."""

    def __repr__(self) -> str:
        """Return a line; no row is read."""
        roles = self.roles
        roles_text = [f"label {roles.label!r}"] if roles.label is not None else []
        roles_text += [f"favorable {roles.favorable!r}"] if roles.favorable is not None else []
        roles_text += [f"sensitive {', '.join(split.name for split in roles.sensitive)}"] if roles.sensitive else []
        return f"<Dataset {self.name}: {', '.join(roles_text) or 'no roles'}>"

    @property
    def name(self) -> str:
        """The file's name, or what the data frame was called."""
        return self.source.name

    @property
    def columns(self) -> list[str]:
        """The table's columns."""
        return self.source.columns

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that a model gets, in order."""
        return self.roles.feature_names(self.columns)

    def with_features(self, features: Sequence[str] | None) -> Dataset:
        """Return the same rows for a model that gets other columns, in this order; None: as they are."""
        if features is None:
            return self
        require_columns(features, self.columns, role="feature", table=self.name)
        copied = copy.copy(self)
        copied.roles = replace(self.roles, features=tuple(features), drop=())
        return copied

    @property
    def profile(self) -> Profile:
        """What the first pass found: the digest, sizes and label values."""
        if self._profile is None:
            raise DataError(f"{self.name}: its rows have not been read yet; call its method `learn` first")
        return self._profile

    @phase("read")
    def learn(self, total: Total = total_here) -> Profile:
        """Make the first pass over the rows, once, and return what it found, which is then `profile`."""
        if self._profile is None:
            bins, notes = widened(self.source, lambda: choose_bins(self.source, self.roles))
            grouped = [c for split in bins.values() for c, e in zip(split.columns, split.edges, strict=True) if not e]
            units = [name for name in (self.roles.cluster, self.roles.query) if name is not None]
            self.source.spell([*grouped, *units], apart=True)
            apart = self.roles.audited(self._noted) if self._counts_rows else ()
            tally = take_tally(self.source, self.roles, bins, total, self._noted, apart)
            self._profile, self._distinct = tally.profile(self.name, notes), tally.distinct
            self._coders, self._strata, self._parts = tally.coders, tally.strata, tally.parts
        return self._profile

    def note(self, columns: Sequence[str]) -> None:
        """Ask the first pass for the distinct values of columns: see `fairkit.data.profile.Profile`.

        A first pass that was made without them is made again.
        """
        require_columns(columns, self.columns, role="prediction", table=self.name)
        more = [name for name in dict.fromkeys(columns) if name not in self._noted]
        if more:
            self._noted += tuple(more)
            self._profile = None

    def spell(self, columns: Sequence[str]) -> None:
        """Have columns of CSV files read as they are spelled, for a model of text; the first pass is made again."""
        if self.source.spell(columns):
            self._profile = None
            self.learn()

    def count_rows(self) -> None:
        """Ask the first pass, where it was not made, to count equal rows too: see `distinct`."""
        self._counts_rows = True

    def distinct(self, columns: Sequence[str]) -> DistinctRows | None:
        """Return the distinct rows with their counts where these stand for the rows."""
        counted = self._distinct
        return counted if counted is not None and counted.serves([*columns, *self.roles.columns]) else None

    def without_rows(self) -> Dataset:
        """Return a dataset that knows groups and labels, and whose rows are read part by part only."""
        source = self.source
        return self.part(Source(source.name, source.types, (Elsewhere(source.name),)), 0)

    def part(self, source: Source, start: int) -> Dataset:
        """Return a part of the table, whose first row is number `start`, with the whole table's groups and profile."""
        self.learn()
        view = self._view(source, self.roles)
        view._start = start
        return view

    def with_roles(self, roles: Roles) -> Dataset:
        """Return the same rows with roles that name the same columns; the first pass is not made again."""
        return self._view(self.source, roles)

    def _view(self, source: Source, roles: Roles) -> Dataset:
        view = Dataset(source, roles)
        view._coders, view._strata, view._parts = self._coders, self._strata, self._parts
        view._profile, view._start, view._noted = self._profile, self._start, self._noted
        return view

    @property
    def sha256(self) -> str:
        """The digest of the table's content (see `fairkit.data.digest.TableDigest`)."""
        return self.profile.sha256

    @property
    def splits(self) -> tuple[Sensitive, ...]:
        """The ways to split people, with the bins that the first pass found."""
        self.profile  # noqa: B018 -- raises before the pass that finds the bins
        return tuple(coder.split for coder in self._coders.values())

    def group_names(self, sensitive: str) -> list[str]:
        """Return the groups' names; a batch's group indices point into this list."""
        self.profile  # noqa: B018 -- raises before the pass that finds the groups
        return self._coders[sensitive].names

    def stratum_names(self, within: str) -> list[str]:
        """Return the strata's names; a batch's indices of strata point into this list."""
        self.profile  # noqa: B018 -- raises before the pass that finds the strata
        return self._strata[within].names

    def batches(self, columns: Sequence[str] = (), rows: int = BATCH_ROWS, *, partial: bool = False) -> Iterator[Batch]:
        """Read the rows that are used, in order, with the given columns besides those that have a role.

        Parameters
        ----------
        columns
            What to read.
        rows
            At most so many of the table's rows at once.
        partial
            Whether rows without a sensitive value, whose group is -1, and rows without a label come too. By default
            only rows that have a label and a group in every sensitive column come.
        """
        self.learn()
        wanted = [*columns, *self.roles.columns] or self.columns[:1]
        yield from each("read", ahead("read", self._batches(wanted, rows, partial=partial), threads(self.source.parts)))

    def _batches(self, columns: Sequence[str], rows: int, *, partial: bool) -> Iterator[Batch]:
        start = self._start
        for arrow in self.source.batches(columns, rows, coded=True):
            batch = self._batch(arrow, start, partial=partial)
            start += arrow.num_rows
            if len(batch):
                yield batch

    @phase("read")
    def read(self, columns: Sequence[str] | None = None, limit: int | None = None) -> Batch:
        """Read all rows that have a label and every group at once, by default with the features.

        `limit`: the first so many; where they are rare, those among the `LOOKED_THROUGH` rows from the first one on.
        """
        import pyarrow as pa

        wanted = list(self.features if columns is None else columns)
        self.learn()
        parts, used, start = [], 0, self._start
        for part in self.source.batches([*wanted, *self.roles.columns] or self.columns[:1], limit or BATCH_ROWS):
            parts.append(part)
            if limit is None:
                continue
            used += len(self._batch(part, 0))
            if not used:
                start += parts.pop().num_rows
            elif used >= limit or sum(map(len, parts)) >= LOOKED_THROUGH:
                break
        batch = self._batch(pa.Table.from_batches(parts or [part]).combine_chunks().to_batches()[0], start)
        return batch if limit is None or len(batch) <= limit else batch.take(np.arange(len(batch)) < limit)

    def info(self) -> DataInfo:
        """Return the data's part of a report."""
        profile = self.learn()
        return DataInfo(
            name=self.name,
            sha256=profile.sha256,
            rows=profile.rows,
            dropped_rows=profile.dropped_rows,
            unlabelled_rows=profile.unlabelled,
            groups=profile.groups,
            notes=(*self.source.notes, *profile.notes, *self._hint(), *self._unpublished()),
            missing=profile.missing,
            weights=self.roles.weights,
            joined=profile.joined,
            label=self.roles.label,
            favorable=None if self.roles.favorable is None else value_text(self.roles.favorable),
            columns=profile.sheet.listed(),
            more_columns=profile.sheet.more,
            period=profile.sheet.period(),
            clusters={}
            if profile.clusters is None
            else {"column": self.roles.cluster or self.roles.query, "count": profile.clusters},
            source={**self.source.origin, "unordered": profile.unordered} if self.source.origin else {},
        )

    def _hint(self) -> list[str]:
        """Say what is done where some outcomes are not known, and what more could be."""
        gone = self.profile.unlabelled
        if not gone or self.roles.labelled is not None or self.roles.favorable is None:
            return []
        return [
            f"{gone:,} of {self.profile.rows:,} rows have no outcome: numbers that need one lie between bounds. "
            "Where these rows were drawn, say how with `labelled`: the numbers are then those of all rows."
        ]

    def _unpublished(self) -> list[str]:
        if self.published is None or self.published == self.profile.sha256:
            return []
        return [
            f"{self.name} is not the published table: its content is {self.profile.sha256[:12]}, that of the published "
            f"one {self.published[:12]}."
        ]

    @phase("read")
    def _batch(self, arrow: pa.RecordBatch, start: int, *, partial: bool = False) -> Batch:
        keep = present_rows(arrow, [self.roles.weights])
        used = arrow if keep.all() else arrow.filter(as_arrow(keep))
        if not partial:
            whole = present_rows(used, self.roles.needed)
            if not whole.all():
                used = used.filter(as_arrow(whole))
                keep[keep] = whole
        label = favorable = labelled = None
        if self.roles.label is not None:
            column = used.column(used.schema.names.index(self.roles.label))
            label = as_numpy(column)
            labelled = present_rows(used, [self.roles.label]) if partial and self.profile.unlabelled else None
            if self.roles.favorable is not None:
                favorable = equal_cells(column, value_among(self.profile.label_values, self.roles.favorable))
        weights = None if self.roles.weights is None else cells(used, self.roles.weights).astype(float)
        rows = start + (np.arange(len(keep)) if keep.all() else np.flatnonzero(keep))
        batch = Batch(
            rows=rows,
            groups={name: coder.encode(used) for name, coder in self._coders.items()},
            label=label,
            favorable=favorable,
            weights=weights,
            _arrow=used,
            labelled=labelled,
            strata={name: coder.encode(used) for name, coder in self._strata.items()},
            clusters=None
            if self.roles.cluster is None
            else buckets_of(decoded(used.column(used.schema.names.index(self.roles.cluster)))),
            queries=None
            if self.roles.query is None
            else query_numbers(used.column(used.schema.names.index(self.roles.query)), self.roles.query, self.name),
            probabilities=probabilities_of(used, self.roles, self.name),
        )
        return batch if self.roles.labelled is None else self._with_design(batch, used)

    def _with_design(self, batch: Batch, used: pa.RecordBatch) -> Batch:
        """Add which rows were drawn to be labelled, and with what probability, where that differs."""
        design = self.roles.labelled
        assert design is not None  # noqa: S101 -- callers look
        drawn, chance = design.asked(batch)
        if design.kind == "by":
            chance = np.array(self.profile.part_shares)[self._parts[0].encode(used)]
        elif design.kind == "probability":
            chance = batch.column(design.columns[0])
            fine = chance.dtype.kind in "if" and bool(((chance > 0) & (chance <= 1)).all())
            if not fine:
                raise DataError(
                    f"{self.name}: the column {design.columns[0]!r} of `labelled` holds what is no probability; every "
                    "row needs its own, above 0 and at most 1"
                )
            chance = chance.astype(np.float64)
        return replace(batch, drawn=drawn, chance=chance)
