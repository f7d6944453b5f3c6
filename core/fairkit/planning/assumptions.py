"""What a plan assumes about the groups: typed numbers, or what a pilot report found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ParameterError, PolicyError
from fairkit.planning.draws import Truth

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Rate
    from fairkit.planning.targets import Target
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.rules import Rule

    Array = NDArray[np.float64]

_WORST = 0.5


def assumed(rule: Rule, target: Target, groups: Any, assume: Any, base: Any) -> tuple[Truth, tuple[str, ...]]:
    """Return the truth that was typed, and notes."""
    shares = _shares(rule, target, groups)
    names = tuple(shares)
    rates, notes = [], []
    for rate in target.rates:
        assumption = assume.get(rate.name) if isinstance(assume, Mapping) and rate.name in assume else assume
        if isinstance(assumption, Mapping) and not set(assumption) & set(names):
            assumption = None
        if assumption is None:
            if target.kind != "difference":
                raise ParameterError(
                    f"a plan for {rule.metric!r} needs the groups' {rate.name}: `assume=0.3`, or group=0.3,group=0.35"
                )
            assumption = _WORST
            notes.append(f"{rate.name} is taken to be 1/2 in every group, the worst case; `assume` says better.")
        rates.append(_by_group(assumption, names, f"the assumed {rate.name}"))
    bases = np.stack([_base(rate, base, names) for rate in target.rates])
    none = np.zeros(len(names))
    truth = Truth(
        names=names,
        shares=np.array(list(shares.values())) / sum(shares.values()),
        rates=np.stack(rates),
        bases=bases,
        rows=none,
        denominators=np.zeros(bases.shape),
        counted=np.zeros(bases.shape),
    )
    return truth, tuple(notes)


def _shares(rule: Rule, target: Target, groups: Any) -> dict[str, float]:
    if target.kind == "level" and not groups:
        return {"all": 1.0}
    chosen = groups
    if isinstance(groups, Mapping) and any(isinstance(part, Mapping) for part in groups.values()):
        chosen = groups.get(rule.sensitive) if rule.sensitive else next(iter(groups.values()))
    if not chosen:
        raise ParameterError(f"a plan for {rule.metric!r} needs the groups' shares: `groups=female=0.45,male=0.55`")
    shares = {str(name): float(share) for name, share in chosen.items()}
    if len(shares) < 2 or not all(np.isfinite(s) and s > 0 for s in shares.values()):
        raise ParameterError(f"the shares of groups {shares} must be two or more, each above 0")
    return {"all": 1.0} if target.kind == "level" else shares


def _by_group(assumption: Any, names: tuple[str, ...], what: str) -> Array:
    if isinstance(assumption, Mapping):
        lacking = [name for name in names if name not in assumption]
        odd = [name for name in assumption if name not in names]
        if lacking or odd:
            raise ParameterError(
                f"{what}: {'no number for' if lacking else 'there is no group'} {(lacking or odd)[0]!r}; "
                f"the groups are {', '.join(names)}"
            )
        values = np.array([float(assumption[name]) for name in names])
    else:
        values = np.full(len(names), float(assumption))
    if not ((values >= 0) & (values <= 1)).all():
        raise ParameterError(f"{what} must be between 0 and 1, not {values.tolist()}")
    return values


def _base(rate: type[Rate], base: Any, names: tuple[str, ...]) -> Array:
    """Return the share of each group's rows that a rate is over."""
    if all(rate.over):
        return np.ones(len(names))
    if base is None:
        raise ParameterError(
            f"a plan for {rate.name} needs `base`, the share of rows with the favorable outcome "
            "(for precision: with the favorable decision)"
        )
    share = _by_group(base, names, "the base share")
    if not ((share > 0) & (share < 1)).all():
        raise ParameterError(f"the base share must be above 0 and below 1, not {share.tolist()}")
    return 1 - share if rate.over == (1, 1, 0, 0) else share


def observed(rule: Rule, target: Target, report: Report) -> tuple[Truth, tuple[str, ...]]:
    """Return a pilot report's rates as the truth, as if no row had been seen."""
    truth = seen(rule.sensitive, target, report.findings)
    if truth is None:
        raise PolicyError(
            f"the report does not have the rates and denominators behind {rule.metric!r}; "
            "it is too old, or was made without a label: audit again"
        )
    nothing = np.zeros_like(truth.counted)
    fresh = Truth(
        names=truth.names, shares=truth.shares, rates=truth.rates, bases=truth.bases,
        rows=np.zeros(len(truth.names)), denominators=nothing, counted=nothing,
    )  # fmt: skip
    return fresh, ("The rates of the pilot report are taken to be true.",)


def seen(sensitive: str | None, target: Target, findings: Any) -> Truth | None:
    """Return the measured rates as the truth, with its rows; None where rates or denominators are missing."""
    rates, inside, groups = [], [], None
    for rate in target.rates:
        finding = _finding(f"{rate.name}_difference", sensitive, findings)
        if finding is None or any(g.value is None or not g.denominator for g in finding.groups):
            return None
        groups = finding.groups
        inside.append([float(g.denominator or 0) for g in groups])
        rates.append([float(g.value or 0) for g in groups])
    if groups is None or target.kind == "level":
        return None
    rows = np.array([float(g.rows) for g in groups])
    denominators, values = np.array(inside), np.array(rates)
    return Truth(
        names=tuple(g.group for g in groups),
        shares=rows / rows.sum(),
        rates=values,
        bases=np.minimum(denominators / rows, 1.0),
        rows=rows,
        denominators=denominators,
        counted=values * denominators,
    )


def _finding(metric: str, sensitive: str | None, findings: Any) -> Finding | None:
    chosen = [
        f
        for f in findings
        if f.metric == metric
        and f.groups
        and f.sensitive == sensitive
        and not {"class", "probabilities"} & set(f.parameters)
        and f.plain
    ]
    return chosen[0] if len(chosen) == 1 else None
