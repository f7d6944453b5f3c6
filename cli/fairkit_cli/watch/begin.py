"""`fairkit watch init`: what a watch is asked, from the model's certificate, a configuration file and options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError
from fairkit.support.lazy_dataclass import dataclass
from fairkit_cli import options as opt
from fairkit_cli.registry.versions import RegistryOption, open_registry
from fairkit_cli.terminal.output import echo, print_json

if TYPE_CHECKING:
    from fairkit.results.report import Report
    from fairkit_cli.config import Config
    from fairkit_watch.settings import WatchSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is watched, as far as a registry or a certificate tells."""

    model: str | None = None
    sha256: str | None = None
    alias: str | None = None
    certificate: str | None = None
    report: Report | None = None
    roles: Any = None
    rules: Any = ()


def subject_of(model: str | None, certificate: Path | None, registry: Path | None) -> Subject:
    """Return the subject of a watch, from a name in the registry, a file, or a certificate."""
    from fairkit_registry.evidence import certificate as certificates

    if model is None or Path(model).is_file():
        digest = None
        if model is not None:
            from fairkit_registry.blobs import hash_file

            digest = hash_file(Path(model))
        if certificate is None:
            return Subject(model=model, sha256=digest)
        raw = certificates.read_file(certificate)
        signed = certificates.check_subject(raw, digest, where=str(certificate)) if digest else certificates.read(raw)
        return _of_certificate(signed, model=model or signed.model_name, alias=None)
    return _registered(model, certificate, registry)


def _registered(model: str, certificate: Path | None, registry: Path | None) -> Subject:
    from fairkit_registry import jsonio as names
    from fairkit_registry.evidence import certificate as certificates
    from fairkit_registry.evidence.signers import parse_public

    reference = names.parse(model)
    with open_registry(registry) as store:
        version = store.version(reference)
        alias_record = None if reference.alias is None else store.alias(version.name, reference.alias)
        if certificate is not None:
            subject_certificate = certificates.check_subject(
                certificates.read_file(certificate), version.model, where=str(certificate)
            )
            return _of_certificate(subject_certificate, model=version.reference, alias=reference.alias)
        trusted = [parse_public(pem) for pem in alias_record.policy.keys] if alias_record is not None else []
        digest = (
            alias_record.certificate
            if alias_record is not None and alias_record.certificate
            else (*version.certificates, None)[0]
        )
        if digest is None:
            return Subject(model=version.reference, sha256=version.model, alias=reference.alias)
        raw = store.certificate(digest)
        subject_certificate = (
            certificates.verify(raw, trusted, model_sha256=version.model) if trusted else certificates.read(raw)
        )
    return _of_certificate(subject_certificate, model=version.reference, alias=reference.alias)


def _of_certificate(certificate: Any, *, model: str, alias: str | None) -> Subject:
    return Subject(
        model=model,
        sha256=certificate.model_sha256,
        alias=alias,
        certificate=certificate.sha256,
        report=certificate.report,
        roles=certificate.settings.get("data", {}),
        rules=tuple(
            {"metric": rule.metric, "sensitive": rule.sensitive, rule.rule.side: rule.limit, **rule.rule.scenario}
            for rule in certificate.report.policy
        ),
    )


State = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the watch.")]


@opt.expanded
def init(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="What is watched: a name in the registry, such as credit@production, whose certificate gives columns, "
            "groups and rules. It may be left out.",
        ),
    ] = None,
    *,
    state: Annotated[Path, opt.option("--state", "FOLDER", "The folder of the watch; a new one.")],
    policy: Annotated[
        Path | None,
        opt.option(
            "--policy",
            "FILE",
            "The rules ([[policy]]) and columns ([data], [watch]), a fairkit.toml. Default: the nearest one.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None, opt.option("--certificate", "CERT", "The model's certificate, where it is in no registry.")
    ] = None,
    predictions: Annotated[
        list[str] | None,
        opt.option(
            "--predictions",
            "decision=COL,...",
            "The column of the decision (decision=COL), its favorable value (favorable=V; default 1, or the "
            "label's), and a score whose mean is watched (score=COL). Default: decision=decision.",
        ),
    ] = None,
    columns: opt.WatchedColumns,
    maximums: opt.MaxRules = None,
    minimums: opt.MinRules = None,
    groups: Annotated[
        list[str] | None,
        opt.option(
            "--groups",
            "COL=A,B",
            "The groups that are expected in a sensitive column, as sex=female,male (repeatable). Default: the "
            "certificate's, else those of the first day.",
        ),
    ] = None,
    horizon: Annotated[
        int | None,
        opt.option(
            "--horizon",
            "DAYS",
            "Days after which an outcome is known, or counts as unresolved. 0 (default): outcomes come with decisions.",
        ),
    ] = None,
    selective: Annotated[
        bool | None,
        typer.Option("--selective", help="Outcomes exist for favorable decisions only: such rules are refused."),
    ] = None,
    review_rows: Annotated[
        int | None,
        opt.Rare(
            "watch.review_rows",
            "Decisions expected before the next review; intervals between groups are narrowest at a tenth of them "
            "(100000).",
        ),
    ] = None,
    run_length: Annotated[
        int | None,
        opt.Rare(
            "watch.run_length", "Days between false alarms of recent change, on average, all rules together (1000)."
        ),
    ] = None,
    since: Annotated[
        str | None, opt.Rare("watch.since", "Refuse decisions before this day. Default: the first ones begin.")
    ] = None,
    confidence: opt.Confidence = None,
    assignments: opt.Assignments = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Begin a watch: rules, columns and groups are fixed in a new folder, and never change in it."""
    from fairkit_cli.config import load_config
    from fairkit_watch.watch import Watch

    if assignments:
        raise ParameterError(
            f"--set {assignments[0]!r}: a watch has no such key; `fairkit watch init --help` lists them"
        )
    config = load_config(policy)
    subject = subject_of(model, certificate, registry)
    options = {
        "horizon": horizon,
        "selective": selective,
        "review_rows": review_rows,
        "run_length": run_length,
        "since": since,
        "id": columns.id,
        "day": columns.day,
    }
    stated = {key: value for key, value in options.items() if value is not None}
    stated |= _predictions(predictions, config.data.get("predictions"))
    settings = _settings(config, subject, {**config.watch, **stated}, columns, (maximums, minimums), groups, confidence)
    with Watch.begin(state, settings) as watch:
        if output_format == "json":
            print_json({"state": str(state), "policy": settings.digest, "settings": settings.to_dict()})
            return
        names = ", ".join(question.name for question in watch.judge.questions) or "no rules"
        at = settings.columns
        pairs = ((at.decision, at.favorable_decision or at.favorable or 1), (at.label, at.favorable))
        wanted = [f"{name} (favorable: {value})" for name, value in pairs if name]
        wanted += [name for name in (at.day, at.id, at.score, at.weights, *settings.sensitive) if name]
        echo(
            f"watch    {state}",
            f"watches  {settings.model or 'decisions of an unnamed model'}: {names}",
            f"needs    in each table of `fairkit watch add`: {', '.join(wanted)}",
            f"promise  {settings.confidence:.0%} for all verdicts together, at every look; a false alarm of recent "
            f"change in {settings.run_length:,} days on average",
        )


def _settings(
    config: Config,
    subject: Subject,
    table: dict[str, Any],
    columns: opt.WatchedColumns,
    limits: tuple[list[str] | None, list[str] | None],
    groups: list[str] | None,
    confidence: float | None,
) -> WatchSettings:
    """Combine options, the configuration file and the certificate, in this order."""
    from fairkit_watch.judging import groups_of, reference_of
    from fairkit_watch.settings import Columns, Reference, WatchSettings, split_name

    roles = subject.roles or {}

    def role(name: str, typed: Any) -> Any:
        return typed if typed is not None else config.data.get(name, roles.get(name))

    sensitive = opt.split_names(columns.sensitive)
    if sensitive is None:
        sensitive = opt.listed(config.data.get("sensitive", roles.get("sensitive")))
    rules = opt.rules_of(*limits) or config.policy
    expected = groups_of(subject.report, [split_name(text) for text in sensitive]) if subject.report else {}
    selective = table.get("selective", False)
    if not isinstance(selective, bool):
        raise ParameterError("selective in [watch] takes true or false")
    numbers = ("horizon", "labelled", "review_rows", "run_length", "since")
    return WatchSettings(
        rules=tuple(rule.to_dict() for rule in rules) or subject.rules,
        columns=Columns(
            decision=table.get("decision", "decision"),
            favorable_decision=table.get("favorable_decision"),
            score=table.get("score"),
            label=role("label", columns.label),
            favorable=role("favorable", columns.favorable),
            id=table.get("id"),
            weights=role("weights", columns.weights),
            day=table.get("day"),
        ),
        sensitive=tuple(sensitive),
        missing=role("missing", columns.missing) or "drop",
        groups={**expected, **_groups(groups)},
        reference=Reference() if subject.report is None else reference_of(subject.report),
        confidence=opt.first_known(confidence, config.audit.get("confidence"), 0.95),
        selective=selective,
        model=subject.model,
        sha256=subject.sha256,
        certificate=subject.certificate,
        alias=subject.alias,
        **{key: table[key] for key in numbers if key in table},
    )


def _predictions(typed: list[str] | None, configured: Any) -> dict[str, Any]:
    """Return the columns of decision and score, and the favorable decision, as far as they are named."""
    from fairkit.data.roles import PredictionRoles

    if typed is None and configured is None:
        return {}
    roles = PredictionRoles.parse(typed) if typed is not None else PredictionRoles.of(configured)
    if roles.decision is None or set(roles.columns) - {roles.decision, roles.score}:
        raise ParameterError(
            "a watch counts decisions: `predictions` takes decision=COL and, where a mean is to be watched, score=COL"
        )
    stated = {"decision": roles.decision, "score": roles.score, "favorable_decision": roles.favorable}
    return {key: value for key, value in stated.items() if value is not None}


def _groups(texts: list[str] | None) -> dict[str, tuple[str, ...]]:
    by_split = {}
    for text in texts or ():
        split, equals, names = text.partition("=")
        listed = tuple(opt.split_names([names]) or ())
        if not equals or not split or len(set(listed)) < 2 or len(set(listed)) < len(listed):
            raise ParameterError(f"--groups {text!r} is not understood; write --groups sex=female,male")
        by_split[split] = listed
    return by_split
