"""`fairkit certify`, `fairkit verify` and `fairkit key`: signed evidence, and whether it holds."""

from __future__ import annotations

import json
import os
from contextlib import closing, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairkit.errors import DataError, FairkitError, ParameterError
from fairkit_cli import options as opt
from fairkit_cli.lazy import group_of
from fairkit_cli.packs import PackName, ToolScores, asked_by, counted_above_the_median
from fairkit_cli.terminal.output import exit_code, finished, print_as, print_json, say, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.data.dataset import Dataset
    from fairkit.data.source import Source
    from fairkit_cli.config import Config
    from fairkit_cli.packs import Subject
    from fairkit_registry.evidence.certificate import Certificate, Verification
    from fairkit_registry.evidence.settings import SignedSettings
    from fairkit_registry.evidence.signers import Signer


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
    from fairkit_cli.terminal.output import choose
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
    from fairkit_cli.config import load_announced
    from fairkit_cli.packs import Subject, chosen
    from fairkit_cli.terminal.output import load_signers, progress_bar
    from fairkit_registry.evidence.recompute import certify as run
    from fairkit_registry.evidence.settings import SignedSettings
    from fairkit_registry.evidence.signed import SignedTable, named

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


# `fairkit policy lock`: policy, table and settings are signed before the model is seen.


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
    from fairkit_cli.terminal.output import load_signers
    from fairkit_registry.evidence.settings import SignedSettings
    from fairkit_registry.evidence.signed import PolicyLock, sign_lock

    secrets = load_signers(keys, insecure=insecure_key)  # before the table, which may be large
    check_writable(output)
    if data_salted is not None:
        check_writable(data_salted)
    settings = load_announced(config)
    file = "test" if "test" in settings.data else "path"
    asked = opt.audit_settings(typed, settings)
    if not asked.policy:
        _sign_table(columns, settings, secrets, output, purpose, output_format, sealed=data_salted is not None)
        return
    requests = of_requests(columns)
    if requests is None:
        dataset = opt.load_dataset(columns, settings, file=file, conditions=conditions)
    else:
        dataset = requests.dataset(replace(columns, data=None), settings, conditions)
        asked = requests.settings(asked, typed, settings)
    pins = SignedSettings.of_audit(asked, dataset.roles.to_dict())
    seen = dataset.learn()
    rows = seen.rows + seen.dropped_rows
    salt = None if data_salted is None else os.urandom(32).hex()
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


key = group_of({"new": "fairkit_cli.commands.certify:new_key"}, "Keys to sign certificates with.")
app = typer.Typer(
    no_args_is_help=True,
    help="Policies that are fixed before the model is seen.",
    add_completion=False,
    rich_markup_mode=None,
)
app.callback()(lambda: None)  # a group, though it has one command
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
    from fairkit_registry.evidence.signed import SignedTable, sign_table

    if sealed:
        raise ParameterError("--data-salted seals the rows of a lock, which has a policy: --max, --min or [[policy]]")
    path = columns.data or settings.data.get("test") or settings.data.get("path")
    if path is None:
        raise ParameterError("name the table to sign: --data FILE")
    data = load_data(path)
    seen = data.learn()
    raw = sign_table(data.name, data.sha256, seen.rows + seen.dropped_rows, data.columns, secrets, purpose=purpose)
    write_atomic(output, raw)
    table = SignedTable.read(raw)
    print_as(
        output_format,
        table.to_dict() | {"statement": str(output)},
        f"{output}: {table.name}, {table.rows:,} rows, content {table.sha256}; no policy, so the table alone is signed",
        f"signed by key {', '.join(keyid[:16] for keyid in table.keyids)}",
    )


def of_requests(columns: opt.DataOptions) -> Subject | None:
    """Return the subject of a table of `fairkit ask --requests`, which has no answers yet; else None."""
    from fairkit.data.roles import PredictionRoles
    from fairkit.data.task import carried_by
    from fairkit_cli.packs import Subject

    if columns.data is None or not carried_by(columns.data):
        return None
    return Subject(None, PredictionRoles(answer="answer"), columns.data)


def check_alone(
    columns: opt.DataOptions, *groups: Any, predictions: list[str] | None, pack: str | None, tool_scores: bool = False
) -> None:
    """Refuse options beside a lock: it has all settings, and none of them may be chosen again."""
    others = replace(columns, data=None, join=None)
    typed = [
        field.name for group in (others, *groups) for field in fields(group) if getattr(group, field.name) is not None
    ]
    typed += ["tool_scores"] * tool_scores
    typed += ["predictions"] * (predictions is not None) + ["pack"] * (pack is not None)
    if typed:
        raise ParameterError(
            f"--lock has the settings of the audit; leave out --{typed[0].replace('_', '-')}: it cannot be chosen again"
        )


def salt_of(lock: Path | None, path: Path | None) -> str | None:
    """Return the secret of a sealed lock; None without one."""
    from fairkit_registry.evidence.signed import read_salt

    if lock is None and path is not None:
        raise ParameterError("lock.salt opens a sealed lock: give --lock too")
    return None if path is None else read_salt(path)


def by_lock(path: Path, columns: opt.DataOptions, salt: str | None = None) -> tuple[SignedSettings, Dataset]:
    """Return the settings of a lock, and the table if it is the one that was locked."""
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.settings import SignedSettings
    from fairkit_registry.evidence.signed import PolicyLock, named, sealed

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
    stated = sealed(digest, str(salt)) if lock.sealed else digest
    if stated != lock.data_sha256 and not answers:
        raise CertificateError(
            f"{columns.data} is not the table that was locked: it has the content {digest[:16]}..., the lock names "
            f"{lock.data_sha256[:16]}..."
        )
    return settings, dataset


# `fairkit verify`: does a certificate hold.


@opt.expanded
def verify(
    certificate: Annotated[str | None, typer.Argument(metavar="CERT", help="The certificate.")] = None,
    *,
    keys: Annotated[
        list[Path] | None, opt.option("--key", "PUB", "Public key that you trust (repeatable); required.")
    ] = None,
    model: Annotated[str | None, opt.option("--model", "MODEL.onnx", "The model it must be about.")] = None,
    data: Annotated[str | None, opt.option("--data", "FILE", "The data it must be about.")] = None,
    join: Annotated[
        str | None, opt.option("--join", "FILE", "The other table, where the audit took columns of one.")
    ] = None,
    train: Annotated[
        str | None, opt.option("--train", "FILE", "Rows to learn from, to train a tenth of alternatives again.")
    ] = None,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Repeat the whole audit and compare every number.")
    ] = False,
    endpoint: Annotated[
        str | None, opt.option("--endpoint", "URL", "The server to ask again, where it is about an endpoint's answers.")
    ] = None,
    sandbox: opt.SandboxOptions,
    output_format: opt.TableFormat = "table",
    page: Annotated[
        Path | None,
        opt.option("--page", "FILE", "Write the page that checks certificates in a browser, offline; alone."),
    ] = None,
) -> None:
    """Check a certificate: signature, validity, model, data and, with --recompute, every number in it.

    A certificate that holds and says that the policy failed gives exit code 1, as an audit does. What a registry has
    revoked, `fairkit registry verify` heeds.
    """
    from fairkit_cli.config import load_config, model_file, refuse_remote
    from fairkit_cli.registry.versions import load_keys
    from fairkit_cli.text.registry import code_of, lines, record
    from fairkit_registry.blobs import hash_file
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.certificate import check, read_file

    if page is not None:
        unused = (certificate, keys, model, data, join, train, endpoint)
        _write_page(page, unused, recompute=recompute)
        return
    if certificate is None or not keys:
        missing = "argument CERT" if certificate is None else "option --key"
        raise FairkitError(f"Missing {missing}: fairkit verify CERT --key PUB; keys inside a certificate never count")
    refuse_remote(certificate)
    if recompute and data is None:
        raise FairkitError("--recompute needs --data, and --model if there is one: it repeats the audit on them")
    for name, value in (("endpoint", endpoint), ("train", train)):
        if value is not None and not recompute:
            raise FairkitError(f"--{name} is used by --recompute only; add it, or leave --{name} out")
    raw = read_file(Path(certificate))
    digest = None if model is None else hash_file(model_file(model, load_config()))
    outcome = check(raw, load_keys(keys), model_sha256=digest)
    if outcome.error is None and outcome.certificate is not None:
        signed = outcome.certificate
        if recompute and model is None and signed.model_sha256 is not None:
            raise FairkitError("--recompute needs --model too: the certificate is about a model")
        # a query is asked once, for the digest and for the numbers
        table = None
        if data is not None:
            from fairkit.data.sources import open_source  # brings pyarrow, which a signature does not need

            table = open_source(data)
        try:
            with nullcontext() if table is None else closing(table):
                if table is not None:
                    _check_data(outcome, signed, table)
                if join is not None:
                    _check_join(outcome, signed, join)
                if recompute:
                    _recompute(outcome, signed, model, table, endpoint, join)
                    _train_again(outcome, signed, model, table, train, join)
        except CertificateError as error:
            outcome.error = error
    print_as(output_format, record(outcome), *lines(str(Path(certificate)), outcome))
    raise typer.Exit(code_of(outcome))


def _write_page(page: Path, others: tuple[Any, ...], *, recompute: bool) -> None:
    from fairkit.support.files import check_writable, write_atomic
    from fairkit_cli.verifier.bundle import page as verifier_page

    if recompute or any(option is not None for option in others):
        raise FairkitError(
            "--page writes the page for everybody and checks nothing; leave the certificate and other options out"
        )
    check_writable(page)
    write_atomic(page, verifier_page())
    say(f"wrote {page}")


def _check_data(outcome: Verification, certificate: Certificate, data: Source) -> None:
    from fairkit.data.loading import load_data
    from fairkit_registry.errors import VerificationError
    from fairkit_registry.evidence.certificate import check_data

    stated = certificate.report.data
    if "counts" in stated.source:
        _check_counts(outcome, certificate, data)
        return
    seen = load_data(data).learn()  # the digest is over columns, types and values: no roles are needed for it
    if seen.sha256 != stated.sha256 and seen.unordered == stated.source.get("unordered"):
        raise VerificationError(
            "the data are the rows that were signed in another order, and the order is part of their digest: give the "
            "query an ORDER BY that leaves no choice, and certify again"
        )
    check_data(certificate, seen.sha256)
    outcome.held += (f"about the data {certificate.report.data.sha256[:16]}",)


def _check_counts(outcome: Verification, certificate: Certificate, data: Source) -> None:
    """Have the database count again: the digest is that of distinct rows and their counts."""
    from fairkit.engines.local import opened
    from fairkit_registry.evidence.certificate import check_data
    from fairkit_registry.evidence.settings import SignedSettings

    settings = SignedSettings.from_dict(certificate.settings)
    with opened("sql") as running:
        seen = running.placed(settings.open_data(data), (), settings.options).learn(running.total)
    check_data(certificate, seen.sha256)
    outcome.held += (f"about the rows that the database counts again, {seen.sha256[:16]}",)


def _check_join(outcome: Verification, found: Certificate, join: str) -> None:
    from fairkit.data.loading import load_data
    from fairkit_registry.errors import VerificationError

    digest, stated = load_data(join).learn().sha256, found.report.data.joined.get("sha256")
    if digest != stated:
        of = "no other table" if stated is None else f"the content {str(stated)[:16]}..."
        raise VerificationError(f"the joined table is another one: the certificate names {of}, not {digest[:16]}...")
    outcome.held += (f"about columns of the table {digest[:16]}",)


def _recompute(
    outcome: Verification,
    certificate: Certificate,
    model: str | None,
    data: Any,
    endpoint: str | None,
    join: str | None,
) -> None:
    from fairkit_cli.config import load_config, model_file
    from fairkit_cli.terminal.output import progress_bar
    from fairkit_registry.evidence.recompute import recompute
    from fairkit_registry.evidence.settings import SignedSettings

    stated = certificate.settings.get("endpoint", {}).get("url")
    if stated != endpoint:  # what a certificate names is never asked unless the user names it too
        raise FairkitError(
            f"the certificate is about answers of {stated or 'no endpoint'}; to ask again, name that address: "
            f"--endpoint {stated}"
            if stated
            else "the certificate is about no endpoint; leave out --endpoint"
        )
    dataset = SignedSettings.from_dict(certificate.settings).open_data(data, join)
    with progress_bar() as progress:
        file = None if model is None else model_file(model, load_config())
        again = recompute(certificate, file, dataset, progress=progress)
    outcome.held += (f"all {len(again.findings)} findings, computed again",)


def _train_again(
    outcome: Verification, certificate: Certificate, model: str | None, data: Any, train: str | None, join: str | None
) -> None:
    """Train a drawn tenth of the alternatives again, where the certificate is about a search for them."""
    from fairkit_alternatives.record import KEY, Alternatives
    from fairkit_alternatives.search import recheck
    from fairkit_cli.config import load_config, model_file
    from fairkit_cli.terminal.output import progress_bar
    from fairkit_registry.errors import VerificationError
    from fairkit_registry.evidence.settings import SignedSettings

    signed = [finding.evidence[KEY] for finding in certificate.report.findings if KEY in finding.evidence]
    if not signed:
        if train is not None:
            raise FairkitError("the certificate is about no search for alternatives; leave out --train")
        return
    evidence = Alternatives.from_dict(json.loads(signed[0]))
    if train is None or not evidence.about["selected_from_test"]:
        source = (
            "name the rows to learn from, --train FILE" if train is None else "its selection rows are a table apart"
        )
        say(f"no alternative was trained again: {source}; `fairkit alternatives --check` takes both")
        return
    settings = SignedSettings.from_dict(certificate.settings)
    rows = [settings.open_data(one, join) for one in (train, data)]
    try:
        with progress_bar() as progress:
            count = recheck(
                evidence, model_file(str(model), load_config()), rows[0], test=rows[1], options=settings.options,
                progress=progress,
            )  # fmt: skip
    except DataError as error:
        raise VerificationError(str(error)) from error
    outcome.held += (f"the counts of {count} alternatives, trained again",)
