"""Evidence of findings by type: what charts and tables are made of, read from a finding's plain JSON values.

A finding's ``evidence`` maps keys to JSON values; reports, certificates and older files hold them as they are. Who
shows them asks `evidence_of` for a type and gets None where a finding has no such evidence, or something else under
its key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from fairkit.results.findings import is_conditions
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from fairkit.results.findings import Finding


class Evidence(ABC):
    """One type of evidence; `key` is where a finding has it."""

    key: ClassVar[str]

    @classmethod
    @abstractmethod
    def read(cls, value: Any) -> Self | None:
        """Read a JSON value; None where it is not of this type, or empty."""


Kind = TypeVar("Kind", bound=Evidence)


def evidence_of(finding: Finding, kind: type[Kind]) -> Kind | None:
    """Return a finding's evidence of one type; None where it has none."""
    value = finding.evidence.get(kind.key)
    return None if value is None else kind.read(value)


@dataclass(frozen=True, slots=True)
class Histogram(Evidence):
    """Scores by group: between `edges`, B + 1 numbers, the weight of the other outcome and of the favorable one."""

    key = "histogram"
    edges: tuple[float, ...]
    groups: Mapping[str, Sequence[Sequence[float]]]

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read ``{"edges": [...], "groups": {name: [[other, favorable], ...]}}``."""
        if not isinstance(value, Mapping) or not value.get("edges") or not isinstance(value.get("groups"), Mapping):
            return None
        edges = tuple(float(edge) for edge in value["edges"])
        whole = all(len(bins) == len(edges) - 1 for bins in value["groups"].values())
        return cls(edges, value["groups"]) if whole else None

    @property
    def shares(self) -> dict[str, list[float]]:
        """The share of each group's weight in each bin."""
        totals = {name: [float(sum(pair)) for pair in bins] for name, bins in self.groups.items()}
        return {name: [part / (sum(parts) or 1.0) for part in parts] for name, parts in totals.items()}


@dataclass(frozen=True, slots=True)
class Curves(Evidence):
    """ROC curves by group: points of false and true positive rate, from (0, 0) to (1, 1); empty for one outcome."""

    key = "roc"
    groups: Mapping[str, Sequence[Sequence[float]]]

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read ``{name: [[x, y], ...]}``."""
        return cls(value) if isinstance(value, Mapping) and any(value.values()) else None


@dataclass(frozen=True, slots=True)
class CurveBands(Evidence):
    """How far each group's whole true ROC curve may lie from the one shown: false and true positive rate."""

    key = "roc_band"
    halves: tuple[tuple[float, float], ...]

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read ``[rate, rate, ...]``: two for each group, in the order of the finding's groups."""
        if not _is_list(value) or len(value) % 2:
            return None
        if not all(isinstance(half, int | float) and 0 <= half <= 1 for half in value):
            return None
        return cls(tuple(zip(value[::2], value[1::2], strict=True)))


@dataclass(frozen=True, slots=True)
class Calibration(Evidence):
    """By group, bins of scores: their mean score, observed share with its interval, and weight."""

    key = "calibration"
    groups: Mapping[str, Sequence[Mapping[str, Any]]]

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read ``{name: [{"score", "observed", "interval", "weight"}, ...]}``."""
        return cls(value) if isinstance(value, Mapping) and any(value.values()) else None


@dataclass(frozen=True, slots=True)
class Pairs(Evidence):
    """Pairs of people who are alike and are treated differently, the most influential first."""

    key = "pairs"
    records: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read ``[{"from", "to", "distance", "differs", "same", "scores", "losses", ...}, ...]``."""
        records = tuple(item for item in value if isinstance(item, Mapping)) if _is_list(value) else ()
        return cls(records) if records else None


@dataclass(frozen=True, slots=True)
class Flips(Evidence):
    """Rows whose score changes most when columns are set to other values."""

    key = "most_changed"
    records: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read ``[{"row", "lowest": {"values", "score"}, "highest": {"values", "score"}}, ...]``."""
        return cls(tuple(value)) if _is_list(value) else None


@dataclass(frozen=True, slots=True)
class Bounded(Evidence):
    """The interval is no estimate: its ends are bounds for every input of a domain, and `decided` says if they meet."""

    key = "decided"
    decided: bool

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read true or false."""
        return cls(value) if isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class GroupsSearched(Evidence):
    """How many groups a search looked at: the finding is about all of them, or about one that it found."""

    key = "groups_searched"
    count: int

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read a number."""
        return cls(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


@dataclass(frozen=True, slots=True)
class Conditions(Evidence):
    """What describes a group (see `fairkit.results.findings`)."""

    key = "conditions"
    conditions: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read ``[{"column": ..., "value": ...}, {"column": ..., "low": ..., "high": ...}, ...]``."""
        return cls(tuple(value)) if is_conditions(value) else None


@dataclass(frozen=True, slots=True)
class ShareCurve(Evidence):
    """No group of at least a share of the rows differs by more than a bound: pairs of both, by share."""

    key = "share_curve"
    points: tuple[tuple[float, float], ...]

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read ``[share, bound, share, bound, ...]``."""
        numbers = _numbers(value)
        if numbers is None or len(numbers) % 2:
            return None
        return cls(tuple(zip(numbers[::2], numbers[1::2], strict=True)))


@dataclass(frozen=True, slots=True)
class Covers(Evidence):
    """Which part of each listed group's rows is in each other one: row i is of group i."""

    key = "covers"
    parts: tuple[tuple[float, ...], ...]

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read K · K numbers, row by row."""
        numbers = _numbers(value)
        size = round(len(numbers or ()) ** 0.5)
        if numbers is None or size * size != len(numbers):
            return None
        return cls(tuple(numbers[i : i + size] for i in range(0, len(numbers), size)))


def _is_list(value: Any) -> bool:
    """Whether something is a list that is not empty."""
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0


def _numbers(value: Any) -> tuple[float, ...] | None:
    """Return a list of numbers; None where it is empty or something else."""
    numbers = _is_list(value) and all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)
    if not numbers:
        return None
    return tuple(float(item) for item in value)


@dataclass(frozen=True, slots=True)
class LowestGroup(Evidence):
    """The group whose value is the lowest."""

    key = "lowest_group"
    group: str

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Read a group's name."""
        return cls(str(value))


@dataclass(frozen=True, slots=True)
class HighestGroup(LowestGroup):
    """The group whose value is the highest."""

    key = "highest_group"


_KINDS = (
    Histogram, Curves, CurveBands, Calibration, Pairs, Flips, GroupsSearched, Conditions, ShareCurve, Covers,
    LowestGroup, HighestGroup,
)  # fmt: skip
BUILT_IN = frozenset({"error", *(kind.key for kind in _KINDS)})
"""The keys that fairkit shows itself; those of plugins are shown by their `fairkit.charts.EvidenceChart`."""
