"""`fairkit certify`, `fairkit verify` and `fairkit key`: signed evidence, and whether it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fairkit_cli import options as opt
from fairkit_cli.packs import PackName, ToolScores, asked_by, counted_above_the_median
from fairkit_cli.terminal.interrupts import finished
from fairkit_cli.terminal.output import exit_code, print_as, print_json, say, write

key = typer.Typer(
    no_args_is_help=True, help="Keys to sign certificates with.", add_completion=False, rich_markup_mode=None
)
key.callback()(lambda: None)  # a group, though it has one command


@key.command("new")
def new_key(
    path: Annotated[Path, typer.Argument(help="The secret key; the public one goes to PATH.pub.")],
    kind: Annotated[
        Literal["ed25519", "p256"],
        opt.option("--type", "KIND", "ed25519, or p256 (ECDSA), which more tools and tokens take."),
    ] = "ed25519",
    no_passphrase: Annotated[
        bool, typer.Option("--no-passphrase", help="Write the secret key without encryption.")
    ] = False,
    output_format: opt.TableFormat = "table",
) -> None:
    """Make a key pair. Keep PATH to yourself, give PATH.pub to those who verify.

    PATH is encrypted with a passphrase: the first line of the file that FAIRKIT_KEY_PASSPHRASE_FILE names, else
    asked for on the terminal. Without either, as in a build, it is written without encryption, and a note says so.
    """
    from fairkit_cli.terminal.passphrases import choose
    from fairkit_registry.evidence.signers import check_new, new_key_pair

    check_new(path)  # before somebody types a passphrase
    passphrase = None if no_passphrase else choose(path)
    public = new_key_pair(path, kind=kind, passphrase=passphrase)
    record = {"secret": str(path), "public": f"{path}.pub", "keyid": public.keyid, "type": public.kind}
    print_as(
        output_format,
        record | {"encrypted": passphrase is not None},
        *(f"secret key  {path}", f"public key  {path}.pub", f"key id      {public.keyid}"),
    )


@opt.expanded_but(
    {
        "engine": "engine.name",
        "seed": "audit.seed",
        "sensitive_probability": "data.sensitive_probability",
        "task": "audit.task",
    }
)
def certify(
    model: opt.AuditedModel = None,
    *,
    keys: opt.SigningKeys,
    insecure_key: opt.InsecureKey = False,
    output: Annotated[Path, opt.option("--output", "FILE", "The certificate.")],
    signed_data: Annotated[
        list[Path] | None,
        opt.option("--signed-data", "FILE", "Signed table, from `fairkit policy lock` without a policy (repeatable)."),
    ] = None,
    valid_days: Annotated[
        float | None,
        opt.option("--valid-days", "DAYS", "After so many days the certificate does not hold any more.", min=0),
    ] = None,
    lock: Annotated[
        Path | None,
        opt.option(
            "--lock", "FILE", "Audit by this policy lock: policy, settings and table are its own (give --data only)."
        ),
    ] = None,
    lock_salt: Annotated[Path | None, opt.Rare("lock.salt", "The file of the secret that opens a sealed lock.")] = None,
    columns: opt.DataOptions,
    predictions: opt.PredictionColumns = None,
    served: opt.EndpointOptions,
    conditions: opt.ConditionOptions,
    typed: opt.AuditOptions,
    where: opt.EngineOptions,
    sandbox: opt.SandboxOptions,
    about: opt.About = None,
    pack: PackName = None,
    tool_scores: ToolScores = False,
    output_format: opt.TableFormat = "table",
    config: opt.ConfigFile = None,
) -> None:
    """Audit a model, or a table of decisions, and sign what is found, whatever the verdict; the exit code tells it."""
    from fairkit.support.files import check_writable, write_atomic
    from fairkit_cli.commands.policy import by_lock, check_alone, salt_of
    from fairkit_cli.config import load_announced
    from fairkit_cli.subject import Subject, chosen
    from fairkit_cli.terminal.console import progress_bar
    from fairkit_cli.terminal.passphrases import load_signers
    from fairkit_registry.evidence.certifying import certify as run
    from fairkit_registry.evidence.settings import SignedSettings
    from fairkit_registry.evidence.statements import SignedTable, named

    # before the audit, which may take long
    secrets = load_signers(keys, insecure=insecure_key)
    statements = [named(SignedTable, path) for path in signed_data or ()]
    check_writable(output)
    settings = load_announced(config)
    facts = opt.stated_facts(about, settings, dated=False)
    columns, conditions = asked_by(pack, columns, conditions, settings)
    salt = salt_of(lock, lock_salt)
    if lock is None:
        subject = chosen(model, predictions, settings, served, opt.named_auditors(typed, settings))
        dataset = subject.dataset(columns, settings, conditions)
        asked = subject.settings(opt.audit_settings(typed, settings), typed, settings)
        asked = counted_above_the_median(pack, subject, dataset, asked, scores=tool_scores)
        signed_settings = SignedSettings.of_audit(asked, dataset.roles.to_dict(), subject.record)
    else:
        check_alone(columns, conditions, typed, served, predictions=predictions, pack=pack, tool_scores=tool_scores)
        signed_settings, dataset = by_lock(lock, columns, salt)
        predicted = dataset.roles.predictions if model is None else None
        subject = chosen(model, None, settings) if predicted is None else Subject(None, predicted)
    with progress_bar() as progress:
        signed, report = run(
            subject.model,
            dataset,
            signed_settings,
            secrets,
            progress=progress,
            tables=statements,
            valid_days=valid_days,
            about=facts,
            policy_lock=None if lock is None else lock.read_bytes(),
            lock_salt=salt,
            **where.arguments(),
        )
    finished()  # an interrupt from here on would say that there is no certificate, and there is one
    write_atomic(output, signed)
    if output_format == "json":
        print_json(report.to_dict())
    else:
        from fairkit_cli.formats import screen

        write(lambda terminal: screen(report, terminal=terminal))
    say(f"wrote the certificate {output}, verdict {report.verdict or 'none: no policy'}")
    raise typer.Exit(exit_code(report.verdict))
