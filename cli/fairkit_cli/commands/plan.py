"""`fairkit plan`: how many rows decide a policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fairkit.errors import ParameterError
from fairkit.support.escaping import json_text
from fairkit.support.files import read_small
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import write

if TYPE_CHECKING:
    from fairkit.planning import Plan
    from fairkit.results.report import Report


def plan(
    maximums: opt.MaxRules = None,
    minimums: opt.MinRules = None,
    groups: Annotated[
        list[str] | None,
        opt.option(
            "--groups",
            "[COL:]A=S,B=S",
            "Each group's share of the rows: female=0.45,male=0.55; for one column: sex:female=0.45,male=0.55.",
        ),
    ] = None,
    assume: Annotated[
        list[str] | None,
        opt.option(
            "--assume",
            "[RATE:]P",
            "The true rate, for all groups (0.3) or by group (female=0.3,male=0.35); of two rates: "
            "true_positive_rate:0.8. Default for differences: 0.5, the worst case.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        opt.option(
            "--base",
            "P",
            "The share of rows with the favorable outcome, for all groups or by group; for precision, with the "
            "favorable decision.",
        ),
    ] = None,
    report: Annotated[
        Path | None, opt.option("--report", "FILE", "A pilot's JSON report: its groups, rates and shares are assumed.")
    ] = None,
    power: Annotated[float, opt.option("--power", "P", "The chance that the rule is decided; default 0.8.")] = 0.8,
    adjust: opt.Adjust = None,
    confidence: opt.Confidence = None,
    seed: opt.Seed = None,
    output_format: opt.TableFormat = "table",
    output: opt.Output = None,
    config: opt.ConfigFile = None,
) -> None:
    """Plan an audit: how many rows decide a policy, and what an audit of that size can see."""
    from fairkit.planning import plan as run
    from fairkit.support.files import check_writable
    from fairkit_cli.config import load_config

    if output is not None:
        check_writable(output)
    if report is not None and (groups or assume or base):
        raise ParameterError("--report says what --groups, --assume and --base would; leave them out")
    typed = opt.AuditOptions(maximums=maximums, minimums=minimums, adjustment=adjust, confidence=confidence, seed=seed)
    settings = opt.audit_settings(typed, load_config(config))
    made = run(
        settings.policy,
        groups=_single(_parts(groups, "--groups female=0.45,male=0.55")),
        assume=_single(_parts(assume, "--assume 0.3, or female=0.3,male=0.35")),
        base=_single(_parts([base] if base else None, "--base 0.3, or female=0.3,male=0.35")),
        report=None if report is None else _read(report),
        power=power,
        confidence=settings.confidence,
        adjustment=settings.adjustment,
        seed=settings.seed,
    )
    write(lambda terminal: text_of(made, output_format, terminal), output)


def text_of(made: Plan, output_format: str, terminal: bool) -> str:
    """Return a plan in a format."""
    if output_format == "json":
        return json_text(made.to_dict()) + "\n"
    from fairkit_cli.text.plan import plan_text

    return plan_text(made, terminal=terminal)


def _parts(texts: list[str] | None, example: str) -> dict[str | None, Any]:
    """Read ``[NAME:]NUMBER`` and ``[NAME:]A=NUMBER,B=NUMBER``, by name."""
    parts: dict[str | None, Any] = {}
    for text in texts or ():
        head, equals, _ = text.partition("=")
        name, colon, rest = text.partition(":")
        inside = colon and ":" in (head if equals else text)  # a group's own name may hold a colon
        key, told = (name, rest) if inside else (None, text)
        if key in parts:
            raise ParameterError(f"{text!r}: given twice; write {example}")
        parts[key] = _numbers(told, example)
    return parts


def _numbers(text: str, example: str) -> Any:
    try:
        if "=" not in text:
            return float(text)
        pairs = [part.rpartition("=") for part in text.split(",")]
        return {name.strip(): float(number) for name, _, number in pairs}
    except ValueError:
        raise ParameterError(f"{text!r} is not understood; write {example}") from None


def _single(parts: dict[str | None, Any]) -> Any:
    """Return the value without a name where it is the only one, else the values by name; None without any."""
    if not parts:
        return None
    return parts[None] if set(parts) == {None} else {key: value for key, value in parts.items() if key}


def _read(path: Path) -> Report:
    from fairkit.errors import DataError
    from fairkit.results.report import Report
    from fairkit.results.schema import validate_report

    try:
        record = json.loads(read_small(path))
    except OSError as error:
        raise DataError(f"cannot read the report {str(path)!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{str(path)!r} is not JSON; write a report with fairkit audit ... --format json --output {path}"
        ) from error
    validate_report(record)
    return Report.from_dict(record)
