"""What a search for alternatives leaves: what was declared, counts, and the statements that follow from them alone."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.errors import DataError
from fairkit.support.files import read_small
from fairkit.support.lazy_dataclass import dataclass
from fairkit_alternatives.laws import Law
from fairkit_alternatives.statements import (
    Aim,
    Arbitrary,
    BestCandidate,
    Disagreement,
    NoneOf,
    OneMore,
    PairedCounts,
    arbitrary,
    denominators,
    found,
    losses,
    none_of,
    one_more,
    pick,
    reduction_ends,
    reductions,
    resolution,
    tail_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from fairkit.results.findings import VerdictName

SCHEMA = "fairkit.alternatives/1"
KEY = "alternatives"
"""The key of the evidence among a finding's."""
_NUMBERS = ("loss", "reduction", "share", "alpha")
_DIGESTS = ("model_sha256", "train_sha256", "selection_sha256", "test_sha256")
_FLAGS = ("blind", "selected_from_test")
_TEXTS = ("metric", "label", "objective", "version", *_DIGESTS)


@dataclass(frozen=True, kw_only=True)
class Column:
    """What a search shows about the groups of one sensitive column.

    Attributes
    ----------
    name, groups
        The column and its groups.
    search
        The search, with the alternatives and the pick.
    aim
        What was asked; several columns share the level: each has α / J, so that all statements of one kind hold at α.
    selection, test, disagreement
        Its counts, as those of `Alternatives`.
    """

    name: str
    groups: tuple[str, ...]
    search: Alternatives
    aim: Aim
    selection: PairedCounts
    test: PairedCounts
    disagreement: Mapping[str, Disagreement]

    @cached_property
    def found(self) -> BestCandidate | None:
        """What the test rows say of the pick."""
        return None if self.search.pick is None else found(self.test, self.search.pick, self.aim)

    @cached_property
    def none(self) -> NoneOf:
        """How much less disparity none of the alternatives has, at an accepted loss."""
        return none_of(self.test, self.aim)

    @cached_property
    def one_more(self) -> tuple[OneMore, ...]:
        """For each law the largest share of its trainings that may have δ less at an accepted loss."""
        search = self.search
        return tuple(
            one_more(self.test.take(search.places(law.name)), self.aim, law.name,
                     failed=len(search.failed.get(law.name, ())), laws=len(search.laws))
            for law in search.laws
        )  # fmt: skip

    @cached_property
    def arbitrary(self) -> tuple[Arbitrary, ...]:
        """For each law how often two equally good draws decide otherwise about a person."""
        made = (arbitrary(counted, law, self.groups, self.aim) for law, counted in self.disagreement.items())
        return tuple(item for item in made if item is not None)

    @property
    def resolution(self) -> float:
        """The smallest reduction that these test rows tell, of alternatives that differ as much as these do."""
        apart = self.test.apart
        return resolution(denominators(self.test, self.aim), float(np.median(apart)) if len(apart) else 0.04)

    @property
    def verdict(self) -> VerdictName:
        """``fail``: an alternative was found; ``pass``: T is below δ, and each law's share is at most p."""
        if self.found is not None and self.found.counts:
            return "fail"
        shares = [share.share for share in self.one_more]
        clear = self.none.at_most < self.aim.reduction and all(share <= self.aim.share for share in shares)
        return "pass" if clear and self.weak is None else "inconclusive"

    @property
    def weak(self) -> str | None:
        """Why a bound over these draws excludes little: too few of them, or a law that hardly varies; None: neither."""
        search = self.search
        draws = self.aim.draws(len(search.laws))
        few = [law.name for law in search.laws if (law.draws or 0) < draws]
        if few:
            return f"{few[0]} has fewer than the {draws} draws that a share of {self.aim.share:g} takes"
        if any(search.failed.values()):
            return "some draws failed, and may be better ones"
        spread = [share.variety[1] - share.variety[0] if share.variety else 0.0 for share in self.one_more]
        return "no law varies by the reduction that counts" if max(spread) < self.aim.reduction else None

    def told(self) -> list[tuple[str, str]]:
        """Return the disparity in use and the four statements in words, each under its name."""
        about = self.search.about
        name = f"{about['metric'].replace('_', ' ')} ({self.name})"
        lines = [
            ("model", f"{name} {self.none.base:.4f} on {int(self.test.base.sum()):,} rows, look {about['look']}"),
            ("found", self._found_told()),
            ("none", self._none_told()),
        ]
        lines += [("one more" if n == 0 else "", self._share_told(share)) for n, share in enumerate(self.one_more)]
        return lines + [
            ("arbitrary" if n == 0 else "", _arbitrary_told(share)) for n, share in enumerate(self.arbitrary)
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return a line for each alternative: its reduction and its loss on the test rows."""
        aim, names = self.search.aim, [(candidate["name"], candidate["law"]) for candidate in self.search.candidates]
        (low, high), (lost, error) = reduction_ends(self.test, aim, 0.025), losses(self.test, aim)
        half = tail_of(0.025) * error
        numbers = {
            "reduction": reductions(self.test, aim), "reduction_low": low, "reduction_high": high,
            "loss": lost, "loss_low": lost - half, "loss_high": lost + half,
        }  # fmt: skip
        return [
            {"name": name, "law": law, "pick": index == self.search.pick}
            | {key: float(value[index]) for key, value in numbers.items()}
            for index, (name, law) in enumerate(names)
        ]

    def _found_told(self) -> str:
        one = self.found
        if one is None:
            return "no model loses surely less than that on the selection rows"
        candidate = self.search.candidates[one.place]
        reads = ", which reads the group" if candidate["reads_group"] else ""
        sign = "loses at most" if one.at_most > 0 else "gains at least"
        text = f"{candidate['name']}{reads}: at least {one.at_least:.4f} less (here {one.reduction:.4f}), {sign} "
        text += f"{abs(one.at_most):.4f} (here {one.loss:.4f})"
        return text if one.counts else f"nothing for sure. The best candidate, {text}"

    def _none_told(self) -> str:
        none = self.none
        if none.at_most >= none.base and self.aim.kind == "difference":
            return f"nothing excluded: the bound {none.at_most:.4f} is above the disparity itself"
        text = f"none of the {none.count} that loses at most {self.aim.loss:g} has more than {none.at_most:.4f} less"
        return f"{text} (here {none.largest:.4f})"

    def _share_told(self, one: OneMore) -> str:
        bound = "no bound on the share" if one.share >= 1 else f"at most {one.share:.1%}"
        text = f"{self.aim.reduction:g} less: {bound} of trainings by {one.law} ({one.hits} of {one.draws} may)"
        if one.variety is not None:
            low, high = one.variety
            text += f"; its draws: {low:.3f} to {high:.3f} less"
            text += ", so this law hardly varies" if high - low < self.aim.reduction else ""
        return text


def _arbitrary_told(one: Arbitrary) -> str:
    parts = [
        f"{value[0]:.3f} of {group} [{value[1]:.3f}, {value[2]:.3f}]" if value else f"{group}: under 50 rows"
        for group, value in one.shares.items()
    ]
    return f"two equally good {one.law} draws disagree about {', '.join(parts)}"


@dataclass(frozen=True, kw_only=True)
class Alternatives:
    """The result of a search for less discriminatory alternatives.

    Attributes
    ----------
    about
        What was declared and looked at: metric, sensitive columns, ``groups`` (one of each column, crossed), ε
        (``loss``), δ (``reduction``), p (``share``), costs, objective, α, the seed of splits, digests of the model and
        of training, selection and test rows, the number of the look at the test rows, and why each law's first failed
        draw failed (``failed_because``).
    laws
        The laws of the draws, with their N.
    failed
        By law, the numbers of the draws that failed: they count as hits.
    candidates
        For each alternative its ``name``, ``law`` and ``draw`` (None of others), and whether it ``reads_group``; draws
        first, law by law.
    selection, test
        Counts of paired decisions on the two lots of rows, by crossed group.
    disagreement
        By law, counts of its equally good draws on the test rows, by crossed group.
    model
        The file of the pick where it was found; None in what is read from JSON.
    """

    about: Mapping[str, Any]
    laws: tuple[Law, ...]
    failed: Mapping[str, tuple[int, ...]]
    candidates: tuple[Mapping[str, Any], ...]
    selection: PairedCounts
    test: PairedCounts
    disagreement: Mapping[str, Disagreement]
    model: bytes | None = None

    @cached_property
    def aim(self) -> Aim:
        """What was asked of each column, which has its part of α."""
        numbers = {name: float(self.about[name]) for name in _NUMBERS}
        numbers["alpha"] /= len(self.about["sensitive"])
        return Aim.of(self.about["metric"], costs=tuple(self.about["costs"]), **numbers)

    @cached_property
    def columns(self) -> Mapping[str, Column]:
        """The statements by sensitive column: `found`, `none`, `one_more`, `arbitrary`."""
        made = {}
        for name, crossed in zip(self.about["sensitive"], zip(*self.about["groups"], strict=True), strict=True):
            groups = tuple(dict.fromkeys(crossed))
            places = np.array([groups.index(pair) for pair in crossed])
            made[name] = Column(
                name=name, groups=groups, search=self, aim=self.aim, selection=self.selection.merged(places),
                test=self.test.merged(places),
                disagreement={law: disagreement.merged(places) for law, disagreement in self.disagreement.items()},
            )  # fmt: skip
        return made

    @cached_property
    def pick(self) -> int | None:
        """The place of the alternative that the selection rows choose; None: none loses surely less than ε."""
        names = [candidate["name"] for candidate in self.candidates]
        return pick([column.selection for column in self.columns.values()], self.aim, names)

    @property
    def verdict(self) -> VerdictName:
        """``fail``: an alternative was found by some column; ``pass``: by none, and none is likely, by each."""
        verdicts = {column.verdict for column in self.columns.values()}
        return "fail" if "fail" in verdicts else "inconclusive" if "inconclusive" in verdicts else "pass"

    def places(self, law: str) -> list[int]:
        """Return where the draws of a law are among the candidates."""
        return [index for index, candidate in enumerate(self.candidates) if candidate["law"] == law]

    def told(self) -> list[tuple[str, str]]:
        """Return the four statements in words, each under its name, column by column."""
        counted = [f"{len(self.places(law.name))} {law.name}" for law in self.laws]
        others = sum(candidate["law"] is None for candidate in self.candidates)
        counted += [f"{others} others"] if others else []
        lost = sum(map(len, self.failed.values()))
        why = "".join(f" ({law}: {reason})" for law, reason in self.about.get("failed_because", {}).items())
        counted += [f"{lost} failed, taken for better ones{why}"] if lost else []
        (model, *first), *rest = (column.told() for column in self.columns.values())
        unit = "accuracy" if tuple(self.about["costs"]) == (1.0, 1.0) else "cost per person"
        kept_draws = next(iter(self.columns.values())).none.kept
        summary = f"{', '.join(counted)}; {kept_draws} not surely over a loss of {self.aim.loss:g} of {unit}"
        more = [line for lines in rest for line in lines]
        return [model, ("tried", summary), *first, *more, ("so", self._conclusion())]

    def _conclusion(self) -> str:
        if self.verdict == "fail":
            return "a model with less disparity at an accepted loss was found; certify it, and ask again about it"
        if self.verdict == "pass":
            return "no such model was found, and one more training would hardly find one"
        open_ = [column for column in self.columns.values() if column.verdict == "inconclusive"]
        weak = [column.weak for column in open_ if column.weak is not None]
        if weak:
            return f"cannot tell: {weak[0]}"
        least = max(column.resolution for column in open_)
        if least > self.aim.reduction:
            return (f"cannot tell: these test rows tell reductions from {least:.3f} on, and "
                    f"{self.aim.reduction:g} was asked")  # fmt: skip
        return "cannot tell: no alternative was found for sure, and none is excluded"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, schema ``fairkit.alternatives/1``: everything that the statements are computed from."""
        return {
            "schema": SCHEMA,
            "about": dict(self.about),
            "laws": [law.to_dict() for law in self.laws],
            "failed": {name: list(numbers) for name, numbers in self.failed.items()},
            "reads_group": {
                law.name: any(self.candidates[index]["reads_group"] for index in self.places(law.name))
                for law in self.laws
            },
            "others": [
                {"name": candidate["name"], "reads_group": candidate["reads_group"]}
                for candidate in self.candidates
                if candidate["law"] is None
            ],
            "selection": {"base": self.selection.base.tolist(), "counts": self.selection.lines()},
            "test": {"base": self.test.base.tolist(), "counts": self.test.lines()},
            "disagreement": {
                law: {"accepted": disagreement.accepted.tolist(), "apart": disagreement.apart.tolist()}
                for law, disagreement in self.disagreement.items()
            },
            "statements": self.statements(),
        }

    def statements(self) -> dict[str, Any]:
        """Return the statements as JSON values."""
        name = "" if self.pick is None else self.candidates[self.pick]["name"]
        made = {
            "columns": {
                column.name: {
                    "found": None if column.found is None else dataclasses.asdict(column.found) | {"name": name},
                    "none": dataclasses.asdict(column.none),
                    "one_more": [dataclasses.asdict(share) for share in column.one_more],
                    "arbitrary": [dataclasses.asdict(share) for share in column.arbitrary],
                    "resolution": column.resolution,
                }
                for column in self.columns.values()
            },
            "verdict": self.verdict,
            "told": [f"{name}: {text}" if name else text for name, text in self.told()],
        }
        # infinite and undefined numbers are null
        again: dict[str, Any] = json.loads(json.dumps(made), parse_constant=lambda _: None)
        return again

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of evidence, as `from_dict` does."""
        try:
            return cls.from_dict(json.loads(read_small(path)))
        except ValueError as error:
            raise DataError(f"{path} is no JSON: {error}") from error

    @classmethod
    def from_dict(cls, record: Any) -> Self:
        """Read what `to_dict` wrote, compute every statement again, and refuse what does not follow.

        Raises
        ------
        DataError
            A draw is missing or there twice, a count is larger than its margin, a statement is another one.
        """
        try:
            result = cls._read(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"this is no evidence about alternatives, {SCHEMA} ({error})") from error
        if not _same(result.statements(), record["statements"]):
            raise DataError("the statements do not follow from the counts; somebody changed the evidence")
        return result

    @classmethod
    def _read(cls, record: Any) -> Self:
        if record["schema"] != SCHEMA:
            raise DataError(f"this is no evidence about alternatives: the schema is {record['schema']!r}, not {SCHEMA}")
        about = dict(record["about"])
        wrong = [name for name in _NUMBERS if not _is_number(about[name])]
        wrong += [name for name in _TEXTS if not isinstance(about[name], str)]
        wrong += [name for name in _FLAGS if not isinstance(about[name], bool)]
        wrong += [name for name, why in about.get("failed_because", {}).items() if not isinstance(why, str)]
        names, groups = about["sensitive"], [*map(tuple, about["groups"])]
        if len({*names}) < len(names) or len({*groups}) < len(groups) or {*map(len, groups)} != {len(names)}:
            wrong.append("groups")
        if wrong or not 0 < about["alpha"] < 0.5 or not 0 < about["share"] < 1 or about["reduction"] <= 0:
            raise DataError(f"the evidence about alternatives declares {', '.join(wrong) or 'numbers'} out of range")
        laws = tuple(Law.from_dict(law["name"], {k: v for k, v in law.items() if k != "name" and v is not None})
                     for law in record["laws"])  # fmt: skip
        failed = {name: tuple(numbers) for name, numbers in record["failed"].items()}
        candidates = _candidates(laws, failed, record["reads_group"], record["others"])
        counts = [
            PairedCounts.from_lists(record[part]["base"], record[part]["counts"]) for part in ("selection", "test")
        ]
        if any(len(part) != len(candidates) or len(part.base) != len(about["groups"]) for part in counts):
            raise DataError("the evidence has not one line of counts for each alternative and group")
        disagreement = {
            law: Disagreement(accepted=np.array(entry["accepted"]), apart=np.array(entry["apart"]))
            for law, entry in record["disagreement"].items()
        }
        result = cls(
            about=about, laws=laws, failed=failed, candidates=candidates,
            selection=counts[0], test=counts[1], disagreement=disagreement,
        )  # fmt: skip
        _check_disagreement(result)
        return result


def close_draws(selection: PairedCounts, places: Sequence[int], aim: Aim) -> list[int]:
    """Return the alternatives whose observed loss on the selection rows is accepted."""
    lost, _ = losses(selection, aim)
    return [index for index in places if lost[index] <= aim.loss]


def _candidates(
    laws: Sequence[Law],
    failed: Mapping[str, tuple[int, ...]],
    reads_group: Mapping[str, bool],
    others: Sequence[Mapping[str, Any]],
) -> tuple[Mapping[str, Any], ...]:
    """Return every draw that did not fail, law by law, then the others; so none can be left out."""
    if len({law.name for law in laws}) < len(laws) or {*failed} != {law.name for law in laws}:
        raise DataError("the evidence names draws of a law that is not declared, or declares a law twice")
    made: list[Mapping[str, Any]] = []
    for law in laws:
        lost = set(failed[law.name])
        if law.draws is None or len(lost) < len(failed[law.name]) or not lost <= set(range(law.draws)):
            raise DataError(f"the law {law.name!r} does not say how many draws there are and which failed")
        made += [entry_of(law, number, reads_group[law.name]) for number in range(law.draws) if number not in lost]
    made += [
        {"name": str(entry["name"]), "law": None, "draw": None, "reads_group": entry["reads_group"]} for entry in others
    ]
    if len({entry["name"] for entry in made}) < len(made):
        raise DataError("two alternatives of the evidence have one name")
    return tuple(made)


def entry_of(law: Law, number: int, reads_group: bool) -> dict[str, Any]:
    """Return the entry of a draw among the candidates."""
    return {"name": f"{law.name} {number}", "law": law.name, "draw": number, "reads_group": bool(reads_group)}


def _check_disagreement(result: Alternatives) -> None:
    """Refuse counts of disagreement that do not belong to the draws that are close, or to their rows."""
    rows = result.test.base.sum(axis=(1, 2))
    for law in result.laws:
        close = close_draws(result.selection, result.places(law.name), result.aim)
        disagreement = result.disagreement.get(law.name)
        if len(close) < 2:
            continue
        shapes = ((len(rows), len(close) + 1), (len(close), len(rows)))
        if disagreement is None or (disagreement.accepted.shape, disagreement.apart.shape) != shapes:
            raise DataError(f"the evidence has not the disagreement of the {len(close)} close draws by {law.name!r}")
        x = np.arange(len(close) + 1)
        # each disagreeing pair of draws is counted from both sides
        pairs = disagreement.accepted @ (2 * x * (len(close) - x))
        if (disagreement.accepted.sum(axis=1) != rows).any() or (disagreement.apart.sum(axis=0) != pairs).any():
            raise DataError(f"the disagreement of the draws by {law.name!r} does not add up")
        accepts = (result.test.base[..., 1] - result.test.lost[close] + result.test.gained[close]).sum(axis=(0, 2))
        if (disagreement.accepted @ x != accepts).any():
            raise DataError(f"the draws by {law.name!r} accept other numbers of rows than their counts say")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return bool(one.keys() == other.keys()) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if _is_number(one) and _is_number(other):
        return bool(abs(one - other) <= 1e-9 * max(1.0, abs(one)))
    return bool(type(one) is type(other) and one == other)
