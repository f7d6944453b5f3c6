"""`fairkit registry alias`, `promote` and `demote`: which version a name means, and whether it may."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import FairkitError
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_cli import options as opt
from fairkit_cli.helping import as_options
from fairkit_cli.registry.versions import KeysOption, RegistryOption, load_keys, open_registry
from fairkit_cli.terminal.output import FAILED, exit_code, print_as

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.signers import PublicKey
    from fairkit_registry.promotion.run import Decision
    from fairkit_registry.store.index import Alias
    from fairkit_registry.store.registry import Registry


def alias(
    name: Annotated[str | None, typer.Argument(help="The model.")] = None,
    alias: Annotated[str | None, typer.Argument(help="The alias; without it, all aliases of the model.")] = None,
    *,
    policy: Annotated[
        Path | None,
        opt.option("--policy", "FILE", "All that the alias asks for, in TOML, in place of what it asked before."),
    ] = None,
    key: KeysOption = None,
    maximum: Annotated[list[str] | None, typer.Option("--max", help="Rule METRIC:COLUMN=X (repeatable).")] = None,
    minimum: Annotated[list[str] | None, typer.Option("--min", help="Rule METRIC:COLUMN=X (repeatable).")] = None,
    max_age_days: Annotated[float | None, typer.Option(min=0, help="Oldest audit that counts.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="The table the audit must be on: a file, its content's SHA-256, or the key of its signer."),
    ] = None,
    min_rows: Annotated[
        int | None, typer.Option(min=1, help="The least number of audited rows in every group.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the alias away; the versions stay.")] = False,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Show aliases, or make one and set what it asks for. Options replace the parts that they name."""
    from fairkit_cli.text.registry import columns, policy_text
    from fairkit_registry.promotion.conditions import read_data

    changes: dict[str, Any] = {
        "keys": None if key is None else tuple(public.pem for public in load_keys(key)),
        "rules": None
        if maximum is None and minimum is None
        else tuple(rule.to_dict() for rule in opt.rules_of(maximum, minimum)),
        "max_age_days": max_age_days,
        "min_rows": min_rows,
    }
    if data is not None:
        changes["data"], changes["data_keys"] = read_data(data)
    requested = {part: value for part, value in changes.items() if value is not None}
    if (requested or policy or remove) and alias is None:
        raise FairkitError("a policy belongs to one alias: fairkit registry alias NAME ALIAS ...")
    if remove and (requested or policy):
        raise FairkitError("--remove takes the alias away with its policy; it goes with no other option")
    with open_registry(registry) as store:
        shown = _apply(store, name, alias, policy, requested, remove=remove)
    rows = [
        (
            f"{entry.name}@{entry.alias}",
            "-" if entry.version is None else f"{entry.name}@{entry.version}",
            policy_text(entry.policy),
        )
        for entry in shown
    ]
    table = columns(("alias", "points to", "asks for"), rows)
    print_as(output_format, [entry.to_dict() for entry in shown], *table)


def _apply(
    store: Registry,
    name: str | None,
    alias: str | None,
    policy: Path | None,
    requested: dict[str, Any],
    *,
    remove: bool,
) -> list[Alias]:
    """Do what the options say, and return the aliases to show."""
    from fairkit_registry.promotion.conditions import read_policy
    from fairkit_registry.store.index import AliasPolicy

    if name is None:
        return store.aliases()
    if alias is None:
        store.version(name)  # refuses an unknown name
        return store.aliases(name)
    if remove:
        store.remove_alias(name, alias)
        return store.aliases(name)
    pointed = store.alias(name, alias)
    if pointed is not None and not requested and policy is None:
        return [pointed]
    base = read_policy(policy) if policy is not None else AliasPolicy() if pointed is None else pointed.policy
    return [store.set_alias(name, alias, replace(base, **requested))]


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
    record = decision.to_dict() | {"promoted": decision.verdict == "pass" and not dry_run}
    print_as(output_format, record, *_decided(decision, dry_run=dry_run))
    raise typer.Exit(exit_code(decision.verdict))


def _decided(decision: Decision, *, dry_run: bool) -> list[str]:
    word = "refused" if decision.verdict == "fail" else "not decided"
    line = f"{word}: {decision.version.reference} was not promoted to {decision.alias.alias}"
    if decision.verdict == "pass":
        was = "nothing" if decision.alias.version is None else f"{decision.version.name}@{decision.alias.version}"
        target = f"{decision.version.name}@{decision.alias.alias} {'would point' if dry_run else 'points'} to"
        line = f"{target} {decision.version.reference} (before: {was})"
    return [line, *(f"  {reason.kind}: {as_options(reason.text)}" for reason in decision.reasons)]


def demote(
    reference: Annotated[str, typer.Argument(help="The version that an alias means now, such as credit@7.")],
    alias: Annotated[str, typer.Argument(help="Such as production.")],
    *,
    reason: Annotated[str, opt.option("--reason", "TEXT", "Why, for those who read the log.")],
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Take an alias back from a version: to the one promoted before, if that passes the policy; else to nothing."""
    from fairkit_registry import jsonio
    from fairkit_registry.promotion.run import demote as take_back

    wanted = jsonio.parse(reference)
    if wanted.version is None or not reason.strip():
        raise FairkitError("name the version to take the alias from, as credit@7, and say why with --reason TEXT")
    with open_registry(registry) as store:
        done = take_back(store, wanted.name, wanted.version, alias, {"told": reason})
    verb = "was taken back" if done.done else "was left as it is"
    print_as(output_format, done.to_dict(), f"{done.name}@{done.alias} {verb}: {done.reason}")


# `fairkit registry verify`: does the evidence of a version hold, or that of an exported archive.


_NO_KEY = (
    "name the public key that you trust with --key; no alias of the model trusts one, "
    "and a key that comes along never counts"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What held and what did not; `verdict` is the newest good certificate's, or the alias's policy's."""

    subject: str
    held: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: str | None = None

    @property
    def code(self) -> int:
        """The exit code: a verification that failed, else the verdict."""
        return FAILED if self.failed else exit_code(self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "subject": self.subject,
            "verified": not self.failed,
            "held": list(self.held),
            "failed": list(self.failed),
            "notes": list(self.notes),
            "verdict": self.verdict,
        }

    def lines(self) -> list[str]:
        """Return the lines for people."""
        lines = [f"{self.subject}: {'refused' if self.failed else 'verified'}, verdict {self.verdict or 'none'}"]
        lines += [f"  holds: {text}" for text in self.held]
        lines += [f"  does not hold: {text}" for text in self.failed]
        lines += [f"  note: {text}" for text in self.notes]
        return lines


def verify(
    reference: Annotated[str, typer.Argument(help="A version, NAME@ALIAS, or an exported archive (a file).")],
    key: KeysOption = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Check a version's file and certificates against keys that you trust.

    Without --key the keys count that the model's aliases trust. NAME@ALIAS is also held against the
    alias's policy again.
    """
    from fairkit_cli.config import refuse_remote

    refuse_remote(reference)
    if Path(reference).is_file():
        outcome = _archive(Path(reference), load_keys(key))
    else:
        with open_registry(registry) as store:
            outcome = _version(store, reference, load_keys(key))
    print_as(output_format, outcome.to_dict(), *outcome.lines())
    raise typer.Exit(outcome.code)


def _version(registry: Registry, reference: str, keys: Sequence[PublicKey]) -> Outcome:
    """Check a version in a registry: the model's file, each certificate, and NAME@ALIAS against the policy.

    A certificate by somebody else is a note where another one holds; a damaged file never is.
    """
    from fairkit_registry import jsonio
    from fairkit_registry.errors import RegistryError
    from fairkit_registry.evidence.certificate import check
    from fairkit_registry.exchange.describe import pinned_keys
    from fairkit_registry.promotion.run import evaluate

    wanted = jsonio.parse(reference)
    registered = registry.version(wanted)
    trusted = list(keys) or pinned_keys(registry, registered.name, wanted.alias)
    if not trusted:
        raise FairkitError(_NO_KEY)
    holding: list[str] = []
    failed: list[str] = []
    others: list[str] = []
    notes: list[str] = []
    good: list[Certificate] = []
    problem = registry.blobs.problem(registered.model)
    (holding if problem is None else failed).append(problem or f"the model's file has SHA-256 {registered.model}")
    revoked = registry.revoked()
    for digest in registered.certificates:
        try:
            checked = check(registry.certificate(digest), trusted, model_sha256=registered.model, revoked=revoked)
        except RegistryError as error:
            failed.append(f"certificate {digest[:12]}: {as_options(str(error))}")
            continue
        if checked.failed is not None or checked.certificate is None:
            others.append(f"certificate {digest[:12]}: {as_options(str(checked.failed))}")
            continue
        certificate = checked.certificate
        good.append(certificate)
        signers = ", ".join(keyid[:16] for keyid in certificate.keyids)
        holding.append(
            f"certificate {digest[:12]}: signed by {signers}, about this model, verdict {certificate.report.verdict}"
        )
        notes += [f"certificate {digest[:12]}: setting {text}" for text in certificate.unusual_settings]
    if not registered.certificates:
        failed.append(f"{registered.reference} has no certificate: nobody vouches for it")
    newest = max(good, key=lambda certificate: certificate.audited_at, default=None)
    verdict: str | None = None if newest is None else newest.report.verdict
    if wanted.alias is not None:
        decision = evaluate(registry, registered.reference, wanted.alias)
        verdict = decision.verdict
        notes += [f"policy of {wanted.alias}: {reason.kind}: {as_options(reason.text)}" for reason in decision.reasons]
    outcome = (failed, [*others, *notes]) if good else ([*failed, *others], notes)
    return Outcome(
        subject=registered.reference,
        held=tuple(holding),
        failed=tuple(outcome[0]),
        notes=tuple(outcome[1]),
        verdict=verdict,
    )


def _archive(path: Path, keys: Sequence[PublicKey]) -> Outcome:
    """Check an exported archive without a registry."""
    import tempfile

    from fairkit_registry.errors import ArchiveError, CertificateError, RegistryError
    from fairkit_registry.exchange.describe import look_into

    if not keys:
        raise FairkitError(_NO_KEY)
    try:
        with tempfile.TemporaryDirectory(prefix="fairkit-") as scratch:
            contents = look_into(path, keys, Path(scratch))
    except (ArchiveError, CertificateError, RegistryError) as error:
        return Outcome(subject=str(path), failed=(as_options(str(error)),))
    held = [
        f"{content.origin}: model intact, signed by "
        + ", ".join(sorted({keyid[:16] for certificate in content.certificates for keyid in certificate.keyids}))
        + f", verdict {content.verdict}"
        for content in contents
    ]
    verdicts = {content.verdict for content in contents}
    worst = next((v for v in ("fail", "inconclusive", "pass") if v in verdicts), None)
    return Outcome(subject=str(path), held=tuple(held), verdict=worst)
