"""`fairkit registry alias` and `promote`: which version a name means, and whether it may."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.fields import as_options
from fairkit_cli.registry.common import KeysOption, RegistryOption, load_keys, open_registry
from fairkit_cli.terminal.output import echo, exit_code, print_json

if TYPE_CHECKING:
    from fairkit_registry.policies import AliasPolicy
    from fairkit_registry.promotion.run import Decision
    from fairkit_registry.store.records import Alias
    from fairkit_registry.store.registry import Registry


def alias(
    name: Annotated[str | None, typer.Argument(help="The model.")] = None,
    alias: Annotated[str | None, typer.Argument(help="The alias; without it, all aliases of the model.")] = None,
    *,
    key: KeysOption = None,
    maximum: Annotated[list[str] | None, typer.Option("--max", help="Rule METRIC:COLUMN=X (repeatable).")] = None,
    minimum: Annotated[list[str] | None, typer.Option("--min", help="Rule METRIC:COLUMN=X (repeatable).")] = None,
    max_age_days: Annotated[float | None, typer.Option(min=0, help="Oldest audit that counts.")] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="The table the audit must be on: a file, or its content's SHA-256.")
    ] = None,
    no_worse: Annotated[
        list[str] | None,
        typer.Option(
            help="A metric (METRIC, METRIC:COLUMN or all) not significantly worse than that of the current version."
        ),
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Least confidence of the audit's intervals.")] = None,
    check: Annotated[list[str] | None, typer.Option(help="A plugin's promotion check that must agree.")] = None,
    like: Annotated[
        Path | None, opt.option("--like", "CERT", "Pin all settings of the audit to those of this certificate.")
    ] = None,
    settings: Annotated[
        Path | None,
        opt.option(
            "--settings",
            "FILE",
            "Pin the settings that this file names, in the form of fairkit.toml: [data], [model], [audit].",
        ),
    ] = None,
    min_rows: Annotated[
        int | None, typer.Option(min=1, help="The least number of audited rows in every group.")
    ] = None,
    data_key: Annotated[
        list[Path] | None,
        opt.option("--data-key", "PUB", "Public key of which one must have signed the audited table (repeatable)."),
    ] = None,
    sequential: Annotated[
        bool | None,
        typer.Option(
            "--sequential/--any-order",
            help="Whether every number that the auditor's key gave its certificates must be in this registry.",
        ),
    ] = None,
    revoker: opt.Revokers = None,
    pre_registered: Annotated[
        bool | None,
        typer.Option(
            "--pre-registered/--any-policy",
            help="Whether policy, table and settings must have been locked (`fairkit policy lock`) before the model "
            "came.",
        ),
    ] = None,
    unseen: Annotated[
        bool | None,
        typer.Option(
            "--unseen/--any-rows",
            help="Whether the rows must have been sealed (`fairkit policy lock --data-salted`) by a --data-key before "
            "the model came.",
        ),
    ] = None,
    allow_operator: Annotated[
        list[str] | None,
        opt.option(
            "--allow-operator",
            "OPERATOR",
            "An operator at which rows of a batch may meet, where they are not proved to stay apart (repeatable).",
        ),
    ] = None,
    allow_output: Annotated[
        list[str] | None,
        opt.option("--allow-output", "NAME", "An output that was not audited and may be there (repeatable)."),
    ] = None,
    allow_input: Annotated[
        list[str] | None,
        opt.option(
            "--allow-input",
            "NAME",
            "An input with a default that the audit never fed, and that may be there (repeatable).",
        ),
    ] = None,
    machines: Annotated[
        int | None, typer.Option(min=1, help="From how many unlike machines certificates must be there and pass.")
    ] = None,
    probation: Annotated[
        str | None,
        opt.option(
            "--probation",
            "DAYS",
            "For how many days (30d) signed statements of `fairkit watch` must keep a version after its promotion; "
            "0: none.",
        ),
    ] = None,
    watch_key: Annotated[
        list[Path] | None,
        opt.option(
            "--watch-key",
            "PUB",
            "Public key of which one must have signed those statements; else those of --key (repeatable).",
        ),
    ] = None,
    open_: Annotated[bool | None, typer.Option("--open/--closed", help="Open: no certificate needed.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forget the policy before applying the options.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the alias away; the versions stay.")] = False,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Show aliases, or make one and set what it asks for. Options replace the parts that they name."""
    changes: dict[str, Any] = {
        "keys": None if key is None else tuple(one.pem for one in load_keys(key)),
        "rules": _rules(maximum, minimum),
        "max_age_days": max_age_days,
        "data": None if data is None else tuple(_data_digest(one) for one in data),
        "no_worse": None if no_worse is None else tuple(no_worse),
        "confidence": confidence,
        "checks": None if check is None else tuple(check),
        "open": open_,
        "min_rows": min_rows,
        "data_keys": None if data_key is None else tuple(one.pem for one in load_keys(data_key)),
        "sequential": sequential,
        "pre_registered": pre_registered,
        "unseen": unseen,
        "operators": None if allow_operator is None else tuple(allow_operator),
        "outputs": None if allow_output is None else tuple(allow_output),
        "inputs": None if allow_input is None else tuple(allow_input),
        "machines": machines,
        "watch_keys": None if watch_key is None else tuple(one.pem for one in load_keys(watch_key)),
        "revokers": None if revoker is None else tuple(one.pem for one in load_keys(revoker)),
    }
    requested = {part: value for part, value in changes.items() if value is not None}
    if probation is not None:
        requested["probation_days"] = _days(probation)
    if like is not None and settings is not None:
        raise FairkitError("--like and --settings both say what to pin; give one of them")
    if like is not None or settings is not None:
        requested["settings"] = partial(_pins, like, settings)
    if (requested or clear or remove) and alias is None:
        raise FairkitError("a policy belongs to one alias: fairkit registry alias NAME ALIAS ...")
    if remove and (requested or clear):
        raise FairkitError("--remove takes the alias away with its policy; it goes with no other option")
    with open_registry(registry) as store:
        shown = _apply(store, name, alias, requested, clear=clear, remove=remove)
        states = [(entry, store.probation(entry)) for entry in shown]
    if output_format == "json":
        records = [
            entry.to_dict() | ({} if state is None else {"probation": state.to_dict()}) for entry, state in states
        ]
        print_json(records)
        return
    from fairkit_cli.registry.probation import sentence
    from fairkit_cli.text.registry import columns, policy

    rows = [
        (
            f"{entry.name}@{entry.alias}",
            "-" if entry.version is None else f"{entry.name}@{entry.version}",
            policy(entry.policy),
        )
        for entry in shown
    ]
    echo(*columns(("alias", "points to", "asks for"), rows))
    for entry, state in states:
        if state is not None:
            echo(f"{entry.name}@{entry.alias}: {sentence(state)}")


_LONGEST_PROBATION = 3650


def _days(text: str) -> int | None:
    """Read a number of days; 0 is none at all."""
    import re

    match = re.fullmatch(r"(\d{1,4})d?", text)
    if match is None or int(match[1]) > _LONGEST_PROBATION:
        raise FairkitError(f"--probation {text!r} is no number of days; write it as 30d, at most {_LONGEST_PROBATION}d")
    return int(match[1]) or None


def _apply(
    store: Registry, name: str | None, alias: str | None, requested: dict[str, Any], *, clear: bool, remove: bool
) -> list[Alias]:
    """Do what the options say, and return the aliases to show."""
    if name is None:
        return store.aliases()
    if alias is None:
        store.version(name)  # refuses an unknown name
        return store.aliases(name)
    if remove:
        store.remove_alias(name, alias)
        return store.aliases(name)
    held = store.alias(name, alias)
    if held is not None and not requested and not clear:
        return [held]
    return [store.set_alias(name, alias, _changed(held, requested, clear=clear))]


def _rules(maximum: list[str] | None, minimum: list[str] | None) -> tuple[dict[str, Any], ...] | None:
    if maximum is None and minimum is None:
        return None
    return tuple(rule.to_dict() for rule in opt.rules_of(maximum, minimum))


def _data_digest(text: str) -> str:
    from fairkit_registry.blobs import is_digest

    if is_digest(text):
        return text
    from fairkit.data.loading import load_data

    return load_data(text).learn().sha256


def _changed(current: Alias | None, requested: dict[str, Any], *, clear: bool) -> AliasPolicy:
    from dataclasses import replace

    from fairkit.errors import ParameterError
    from fairkit_registry.policies import AliasPolicy

    if not 0 < requested.get("confidence", 0.95) < 1:
        raise ParameterError(f"--confidence {requested['confidence']} is not between 0 and 1; 0.95 is usual")
    policy = AliasPolicy() if current is None or clear else current.policy
    pinned = requested.pop("settings", None)
    policy = replace(policy, **requested)
    return policy if pinned is None else replace(policy, settings=pinned(policy))


def _pins(like: Path | None, settings: Path | None, policy: AliasPolicy) -> dict[str, Any]:
    """Read the settings to pin; a certificate must be signed by one of the alias's keys."""
    from fairkit_registry.evidence import pinfile
    from fairkit_registry.evidence.keys import parse_public

    if like is None:
        return pinfile.of_file(str(settings))
    if not policy.keys:
        raise FairkitError("--like pins the settings of a certificate that the alias trusts: name its --key too")
    return pinfile.of_certificate(like, [parse_public(pem) for pem in policy.keys])


def promote(
    reference: Annotated[str, typer.Argument(help="The version, such as credit@7.")],
    alias: Annotated[str, typer.Argument(help="Such as production.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether it would be promoted.")] = False,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Point an alias to a version, if the alias's policy allows it. A refusal gives all reasons at once."""
    from fairkit_registry.promotion.run import evaluate
    from fairkit_registry.promotion.run import promote as decide

    with open_registry(registry) as store:
        decision = (evaluate if dry_run else decide)(store, reference, alias)
    if output_format == "json":
        print_json(decision.to_dict() | {"promoted": decision.verdict == "pass" and not dry_run})
    else:
        _print_decision(decision, dry_run=dry_run)
    raise typer.Exit(exit_code(decision.verdict))


def _print_decision(decision: Decision, *, dry_run: bool) -> None:
    target = f"{decision.version.name}@{decision.alias.alias}"
    if decision.verdict == "pass":
        was = "nothing" if decision.alias.version is None else f"{decision.version.name}@{decision.alias.version}"
        verb = "would point" if dry_run else "points"
        echo(f"{target} {verb} to {decision.version.reference} (before: {was})")
    else:
        word = "refused" if decision.verdict == "fail" else "not decided"
        echo(f"{word}: {decision.version.reference} was not promoted to {decision.alias.alias}")
    for reason in decision.reasons:
        echo(f"  {reason.kind}: {as_options(reason.text)}")
