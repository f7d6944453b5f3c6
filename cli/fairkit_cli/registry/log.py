"""`fairkit registry checkpoint`, `prove` and `verify-log`: signed heads of the log, and proofs about it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.registry.common import RegistryOption, load_keys, open_registry, refusing
from fairkit_cli.terminal.output import FAILED, INCONCLUSIVE, PASSED, echo, print_as, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from fairkit_registry.evidence.checkpoints import Checkpoint
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.logproofs import Consistency
    from fairkit_registry.store.events import Event
    from fairkit_registry.store.registry import Registry


def checkpoint(
    *,
    key: Annotated[str, opt.option("--key", "FILE", "The log's secret key (ed25519), or NAME:... of a plugin.")],
    insecure_key: opt.InsecureKey = False,
    output: Annotated[
        Path, opt.option("--output", "FILE", "The checkpoint; one that is there must be of this log, and is replaced.")
    ],
    origin: Annotated[
        str | None,
        opt.option(
            "--origin", "NAME", "The log's name, as example.org/models; default: as before, or by its first event."
        ),
    ] = None,
    timestamp: Annotated[
        str | None,
        opt.option(
            "--timestamp",
            "URL|NAME:...",
            "Ask this time-stamping authority (RFC 3161), or a plugin's, about it; the answer goes to FILE.tsr.",
        ),
    ] = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Sign how many events the log has and their Merkle root (C2SP checkpoint); publish it where others keep it.

    Any copy of it is a witness: `--witness FILE|URL` of every command holds the log against it.
    """
    from fairkit.support.files import check_writable, write_atomic
    from fairkit_cli.terminal.passphrases import load_signers
    from fairkit_registry.evidence import checkpoints
    from fairkit_registry.evidence.timestamping import asking

    (signer,) = load_signers([key], insecure=insecure_key)
    ask = None if timestamp is None else asking(timestamp)
    check_writable(output)
    with open_registry(registry) as store:
        digests = store.digests()
    if not digests:
        raise FairkitError("the log has no event yet: there is nothing to sign")
    leaves = checkpoints.entries(digests)
    if output.is_file():
        with refusing():
            known = checkpoints.verify(output.read_bytes(), [signer.public], where=str(output), origin=origin)
            checkpoints.check_follows(known, leaves, where=str(output))
            origin = known.origin
    name = origin or f"fairkit.registry/{digests[0][:16]}"
    note = checkpoints.sign(name, leaves, signer)
    if ask is not None:
        write_atomic(_stamp_of(str(output)), ask(note.encode()))
    write_atomic(output, note.encode())
    found = checkpoints.parse(note)
    told = checkpoints.verifier_key(name, signer.public)
    print_as(
        output_format,
        {"checkpoint": str(output), **_record(found), "verifier_key": told},
        f"{output}: {found.shown}",
        f"  verifier key {told}",
    )


def _stamp_of(checkpoint: str) -> Path:
    """Return where the timestamp of a checkpoint is."""
    return Path(f"{checkpoint}.tsr")


def _record(found: Checkpoint) -> dict[str, Any]:
    return {"origin": found.origin, "events": found.size, "root": found.root.hex()}


def prove(
    what: Annotated[
        str | None,
        typer.Argument(help="An event's number; or NAME@VERSION: its arrival; or NAME@ALIAS: its last promotion."),
    ] = None,
    *,
    note: Annotated[str, opt.option("--checkpoint", "FILE|URL", "The checkpoint that the proof is about.")],
    old: Annotated[
        str | None, opt.option("--old", "FILE|URL", "Prove that the log goes on from this older checkpoint instead.")
    ] = None,
    output: Annotated[Path, opt.option("--output", "FILE", "The proof.")],
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Prove to others that an event is in the log of a checkpoint, or that a log went on from an older one.

    `fairkit registry verify-log` checks the proof without the registry, as do other tools for C2SP logs.
    """
    from fairkit.support.files import check_writable, write_atomic
    from fairkit_registry.evidence import checkpoints, logproofs

    if (what is None) == (old is None):
        raise FairkitError("say what to prove: an event (12, credit@3 or credit@production), or --old CHECKPOINT")
    raw = _read(note)
    head = checkpoints.parse(raw, where=note)
    before = None if old is None else checkpoints.parse(_read(old), where=old)
    check_writable(output)
    with open_registry(registry) as store:
        leaves = checkpoints.entries(store.digests())
        with refusing():
            checkpoints.check_follows(head, leaves, where=note)
            if before is not None:
                checkpoints.check_follows(before, leaves, where=str(old))
        leaves, text = leaves[: head.size], raw.decode("utf-8")
        if before is not None:
            if before.size > head.size:
                raise FairkitError(f"{old} has {before.size} events and {note} has {head.size}: change the two")
            proof, shown = logproofs.prove_growth(before.size, leaves, text), f"from {before.size} events"
        else:
            event = _event(store, str(what))
            if event.seq > head.size:
                raise FairkitError(
                    f"event {event.seq} is newer than the checkpoint, which has {head.size}: make a new one"
                )
            proof = logproofs.prove_event(event.to_dict(), leaves, text)
            shown = f"event {event.seq}, {event.action} {event.name or ''}".rstrip()
    write_atomic(output, proof.encode())
    print_as(
        output_format, {"proof": str(output), "proves": shown, **_record(head)}, f"{output}: {shown}, in {head.shown}"
    )


def _read(text: str) -> bytes:
    from fairkit_registry.store.heads import read_anywhere

    raw = read_anywhere(text)
    if raw is None:
        raise FairkitError(f"there is no file {text}")
    return raw


def _event(store: Registry, what: str) -> Event:
    """Return the event that a number, a version or an alias means."""
    from fairkit_registry import names

    if what.isdecimal():
        events = [one for one in store.log() if one.seq == int(what)]
        wanted = f"event {what}"
    else:
        reference = names.parse(what)
        version = store.version(reference)
        wanted = f"event about {what}"
        events = [
            event
            for event in store.log(reference.name)
            if (
                reference.alias is None
                and event.action in ("add", "import")
                and event.body["version"] == version.version
            )
            or (reference.alias is not None and event.action == "promote" and event.body["alias"] == reference.alias)
        ]
    if not events:
        raise FairkitError(f"the log has no {wanted}; `fairkit registry log` lists them")
    return events[0]


def verify_log(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE|URL...", help="Checkpoints and proofs, from wherever you got them.")
    ],
    *,
    key: Annotated[list[Path], opt.option("--key", "PUB", "The log's public key (repeatable).")],
    max_age: opt.MaxAge = None,
    timestamp_root: opt.TimestampRoots = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Check checkpoints and proofs of a log, without the registry: signatures, proofs, and that there is one history.

    Two checkpoints of different sizes need a proof between them (`fairkit registry prove --old`); exit code 3 without.
    With --max-age and --timestamp-root the largest checkpoint must be stamped, in FILE.tsr, that recently.
    """
    from fairkit_registry.errors import VerificationError
    from fairkit_registry.evidence.timestamps import read_roots

    if (max_age is None) != (not timestamp_root):
        raise FairkitError("--max-age and --timestamp-root go together: a checkpoint's age is what a timestamp proves")
    age, roots = None if max_age is None else opt.read_age(max_age), read_roots(timestamp_root or ())
    trusted = load_keys(key)
    raws = [(name, _read(name)) for name in dict.fromkeys(files)]
    confirmed: list[str] = []
    doubts: list[str] = []
    failed = None
    try:
        _check(raws, trusted, confirmed, doubts)
        if age is not None:
            _check_fresh(raws, trusted, age, roots, confirmed, doubts)
    except VerificationError as error:
        failed = str(error)
    code = FAILED if failed else INCONCLUSIVE if doubts else PASSED
    if output_format == "json":
        print_json({"verified": failed is None, "held": confirmed, "doubts": doubts, "failed": failed})
    else:
        echo("refused" if failed else "not decided" if doubts else "verified")
        echo(*(f"  holds: {text}" for text in confirmed), *(f"  cannot be decided: {text}" for text in doubts))
        if failed:
            echo(f"  does not hold: {failed}")
    raise typer.Exit(code)


def _check_fresh(
    raws: Sequence[tuple[str, bytes]],
    trusted: Sequence[PublicKey],
    age: timedelta,
    roots: Sequence[str],
    held: list[str],
    doubts: list[str],
) -> None:
    """Ask for a recent timestamp of the largest checkpoint of each log: an older one may be shown instead of it."""
    from fairkit_registry.evidence import checkpoints
    from fairkit_registry.evidence.timestamps import time_of

    newest: dict[str, tuple[int, str, bytes]] = {}
    for name, raw in raws:
        if checkpoints.is_note(raw):
            head = checkpoints.verify(raw, trusted, where=name)
            newest[head.origin] = max(newest.get(head.origin, (-1, "", b"")), (head.size, name, raw))
    if not newest:
        doubts.append("how old the log is: name its checkpoint, beside which its timestamp is (FILE.tsr)")
    for _, name, raw in newest.values():
        try:
            token = _read(str(_stamp_of(name)) if "://" not in name else f"{name}.tsr")
        except FairkitError as error:
            doubts.append(f"how old {name} is: it has no timestamp ({error})")
            continue
        at = time_of(token, raw, roots)
        if datetime.now(UTC) - at > age:
            doubts.append(
                f"whether {name} is the newest: it was stamped at {at:%Y-%m-%d %H:%M} UTC, longer ago than asked for"
            )
        else:
            held.append(f"{name}: stamped at {at:%Y-%m-%d %H:%M} UTC")


def _check(
    raws: Sequence[tuple[str, bytes]], trusted: Sequence[PublicKey], confirmed: list[str], doubts: list[str]
) -> None:
    """Check all files together; what holds and what cannot be decided goes into the lists."""
    from fairkit_registry.evidence import checkpoints, logproofs

    heads: dict[tuple[str, int], Checkpoint] = {}
    grown: list[tuple[Consistency, Checkpoint]] = []
    for name, raw in raws:
        if checkpoints.is_note(raw):
            head = checkpoints.verify(raw, trusted, where=name)
            confirmed.append(f"{name}: {head.shown}, signed")
        else:
            proof = logproofs.read_proof(raw)
            head = checkpoints.verify(proof.note, trusted, where=f"the checkpoint in {name}")
            if isinstance(proof, logproofs.Inclusion):
                logproofs.check_inclusion(proof, head)
                event = proof.event
                what = f"event {proof.index + 1} is {event.get('action')} {event.get('name') or ''}".rstrip()
                confirmed.append(f"{name}: {what} at {event.get('at')}, in {head.shown}")
            else:
                grown.append((proof, head))
        known = heads.setdefault((head.origin, head.size), head)
        if known.root != head.root:
            raise checkpoints.forked(known, head)
    linked = set()
    for proof, head in grown:
        old = heads.get((head.origin, proof.old))
        if old is None:
            doubts.append(f"a proof goes on from {proof.old} events: name the checkpoint of that size too")
            continue
        logproofs.check_growth(proof, old, head)
        linked.add((head.origin, old.size, head.size))
        confirmed.append(f"the log of {head.size} events goes on from that of {old.size}")
    doubts += _unlinked(sorted(heads), linked)


def _unlinked(heads: Sequence[tuple[str, int]], linked: set[tuple[str, int, int]]) -> list[str]:
    """Say which checkpoints of a log are not shown to be of one history with the next larger one.

    Two are if proofs lead from both to one that is at least as large: then both are its beginning. Proofs that only
    set out from a common smaller one say nothing of the two.
    """
    sentences = []
    for (origin, old), (other, new) in pairwise(heads):
        if origin == other and not _reached(origin, old, linked) & _reached(origin, new, linked):
            sentences.append(
                f"whether the log of {new} events goes on from that of {old}: ask for `fairkit registry prove --old`"
            )
    return sentences


def _reached(origin: str, size: int, linked: set[tuple[str, int, int]]) -> set[int]:
    """Return the sizes to which proofs lead from one size, itself among them."""
    reached, waiting = {size}, [size]
    while waiting:
        at = waiting.pop()
        further = {new for name, old, new in linked if name == origin and old == at} - reached
        reached |= further
        waiting += further
    return reached
