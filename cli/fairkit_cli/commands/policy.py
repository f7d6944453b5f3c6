"""`fairkit policy lock`: policy, table and settings are signed before the model is seen."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import print_as

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.data.dataset import Dataset
    from fairkit_cli.config import Config
    from fairkit_cli.subject import Subject
    from fairkit_registry.evidence.settings import SignedSettings
    from fairkit_registry.evidence.signers import Signer

app = typer.Typer(
    no_args_is_help=True,
    help="Policies that are fixed before the model is seen.",
    add_completion=False,
    rich_markup_mode=None,
)
app.callback()(lambda: None)  # a group, though it has one command


@opt.expanded
def lock(
    *,
    keys: opt.SigningKeys,
    insecure_key: opt.InsecureKey = False,
    output: Annotated[Path, opt.option("--output", "FILE", "The lock.")],
    purpose: Annotated[str, opt.option("--purpose", "TEXT", "What the audit is for; it is signed too.")] = "",
    data_salted: Annotated[
        Path | None,
        opt.option(
            "--data-salted",
            "FILE",
            "Seal the table: the lock names it together with a secret only, which this new file keeps.",
        ),
    ] = None,
    columns: opt.DataOptions,
    conditions: opt.ConditionOptions,
    typed: opt.AuditOptions,
    output_format: opt.TableFormat = "table",
    config: opt.ConfigFile = None,
) -> None:
    """Sign the policy, the table and all settings of an audit before there is a model to audit.

    `fairkit registry add NAME LOCK` puts it into the registry's log, `fairkit certify MODEL --lock LOCK` audits by it,
    and an alias that asks for `locked` points to nothing else. Without a policy the table alone is signed: `fairkit
    certify --signed-data FILE` takes that, and an alias asks for it by `--data PUB`.
    """
    from fairkit.support.files import check_writable, write_atomic
    from fairkit_cli.config import load_announced
    from fairkit_cli.terminal.passphrases import load_signers
    from fairkit_registry.evidence.settings import SignedSettings
    from fairkit_registry.evidence.statements import PolicyLock, sign_lock

    secrets = load_signers(keys, insecure=insecure_key)  # before the table, which may be large
    check_writable(output)
    if data_salted is not None:
        check_writable(data_salted)
    settings = load_announced(config)
    file = "test" if "test" in settings.data else "path"
    if not opt.audit_settings(typed, settings).policy:
        _sign_table(columns, settings, secrets, output, purpose, output_format, sealed=data_salted is not None)
        return
    requests = of_requests(columns)
    if requests is None:
        dataset = opt.load_dataset(columns, settings, file=file, conditions=conditions)
        asked = opt.audit_settings(typed, settings)
    else:
        dataset = requests.dataset(replace(columns, data=None), settings, conditions)
        asked = requests.settings(opt.audit_settings(typed, settings), typed, settings)
    pins = SignedSettings.of_audit(asked, dataset.roles.to_dict())
    seen = dataset.learn()
    rows = seen.rows + seen.dropped_rows
    salt = None if data_salted is None else token_hex(32)
    raw = sign_lock(dataset.name, seen.sha256, rows, pins.to_dict(), secrets, purpose=purpose, salt=salt)
    terms = PolicyLock.read(raw)
    if data_salted is not None:
        write_atomic(data_salted, f"{salt}\n".encode(), mode=0o600)
    write_atomic(output, raw)
    print_as(
        output_format,
        terms.to_dict() | {"lock": str(output)},
        f"{output}: {terms.name}, {rows:,} rows, content {terms.data_sha256[:16]}, {len(pins.policy)} rules, locked at "
        f"{terms.locked_at:%Y-%m-%d %H:%M:%S} UTC",
        f"signed by key {', '.join(keyid[:16] for keyid in terms.keyids)}",
    )


app.command("lock")(lock)


def _sign_table(
    columns: opt.DataOptions,
    settings: Config,
    secrets: Sequence[Signer],
    output: Path,
    purpose: str,
    output_format: str,
    *,
    sealed: bool,
) -> None:
    """Sign a table alone: its content's digest, rows and columns."""
    from fairkit.data.loading import load_data
    from fairkit.support.files import write_atomic
    from fairkit_registry.evidence.statements import SignedTable, sign_table

    if sealed:
        raise ParameterError("--data-salted seals the rows of a lock, which has a policy: --max, --min or [[policy]]")
    place = columns.data or settings.data.get("test") or settings.data.get("path")
    if place is None:
        raise ParameterError("name the table to sign: --data FILE")
    data = load_data(place)
    seen = data.learn()
    raw = sign_table(data.name, data.sha256, seen.rows + seen.dropped_rows, data.columns, secrets, purpose=purpose)
    write_atomic(output, raw)
    found = SignedTable.read(raw)
    print_as(
        output_format,
        found.to_dict() | {"statement": str(output)},
        f"{output}: {found.name}, {found.rows:,} rows, content {found.sha256}; no policy, so the table alone is signed",
        f"signed by key {', '.join(keyid[:16] for keyid in found.keyids)}",
    )


def of_requests(columns: opt.DataOptions) -> Subject | None:
    """Return the subject of a table of `fairkit ask --requests`, which has no answers yet; else None."""
    from fairkit.data.answers import carried_by
    from fairkit.data.predictions import PredictionRoles
    from fairkit_cli.subject import Subject

    if columns.data is None or not carried_by(columns.data):
        return None
    return Subject(None, PredictionRoles(answer="answer"), columns.data)


def check_alone(
    columns: opt.DataOptions, *groups: Any, predictions: list[str] | None, pack: str | None, tool_scores: bool = False
) -> None:
    """Refuse options beside a lock: it has all settings, and none of them may be chosen again."""
    others = replace(columns, data=None, join=None)
    typed = [one.name for group in (others, *groups) for one in fields(group) if getattr(group, one.name) is not None]
    typed += ["tool_scores"] * tool_scores
    typed += ["predictions"] * (predictions is not None) + ["pack"] * (pack is not None)
    if typed:
        raise ParameterError(
            f"--lock has the settings of the audit; leave out --{typed[0].replace('_', '-')}: it cannot be chosen again"
        )


def salt_of(lock: Path | None, path: Path | None) -> str | None:
    """Return the secret of a sealed lock; None without one."""
    from fairkit_registry.evidence.statements import read_salt

    if lock is None and path is not None:
        raise ParameterError("lock.salt opens a sealed lock: give --lock too")
    return None if path is None else read_salt(path)


def by_lock(path: Path, columns: opt.DataOptions, salt: str | None = None) -> tuple[SignedSettings, Dataset]:
    """Return the settings of a lock, and the table if it is the one that was locked."""
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.settings import SignedSettings
    from fairkit_registry.evidence.statements import PolicyLock, named, sealed

    lock = PolicyLock.read(named(PolicyLock, path))
    if columns.data is None:
        raise ParameterError("--lock names the content of a table, not where it is: give --data FILE too")
    settings = SignedSettings.from_dict(lock.settings)
    dataset = settings.open_data(columns.data, columns.join)
    digest = dataset.learn().sha256
    if lock.sealed and salt is None:
        raise CertificateError(f"{path} is sealed: give the secret that its owner kept, with --set lock.salt=FILE")
    # answers to locked requests are another table; what they answer is checked when the audit has read them
    answers = dataset.roles.predictions is not None and dataset.roles.predictions.answer is not None
    told = sealed(digest, str(salt)) if lock.sealed else digest
    if told != lock.data_sha256 and not answers:
        raise CertificateError(
            f"{columns.data} is not the table that was locked: it has the content {digest[:16]}..., the lock names "
            f"{lock.data_sha256[:16]}..."
        )
    return settings, dataset
