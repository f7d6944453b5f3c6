"""`fairkit-verify`: `fairkit verify` without the data, the audit and their libraries."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fairkit.errors import FairkitError
from fairkit_cli.terminal.output import BUG, FAILED, INTERRUPTED, PASSED, USAGE, echo, print_json, put
from fairkit_cli.text.verified import code_of, lines, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.verifying import Verification

_ENDING = (
    "exit codes: 0 it holds and its policy passed; 1 it does not hold, or its policy failed; 2 bad input; "
    "3 something cannot be decided"
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print one message, and end with the code of bad usage."""
        print(f"error: {message}. Try: {self.prog} --help", file=sys.stderr)  # noqa: T201 -- a command
        raise SystemExit(USAGE)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fairkit-verify",
        description="Check a fairness certificate: signature, revocation, model, table, and the numbers that follow "
        "from signed counts.",
        epilog=_ENDING,
        allow_abbrev=False,
    )
    parser.add_argument("certificate", metavar="CERT", type=Path, help="the certificate, or a Sigstore bundle")
    parser.add_argument(
        "--key", metavar="PUB", type=Path, action="append", required=True, help="public key that you trust; repeatable"
    )
    parser.add_argument("--model", metavar="MODEL.onnx", type=Path, help="the model that it must be about")
    parser.add_argument(
        "--data-sha256",
        metavar="DIGEST",
        help="the content digest of the table that it must be about, as certificates name it",
    )
    parser.add_argument(
        "--revocations",
        metavar="FILE",
        type=Path,
        action="append",
        help="revocation list, or a folder of them; it is remembered",
    )
    parser.add_argument(
        "--revoker", metavar="PUB", type=Path, action="append", help="key whose lists count against every signature"
    )
    parser.add_argument(
        "--timestamp-root",
        metavar="PEM",
        type=Path,
        action="append",
        help="root of a time-stamping authority that is asked for",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="for people, or for programs")
    parser.add_argument(
        "--cases", action="store_true", help="answer the cases of the conformance suite on standard input; alone"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a certificate, print what holds, and return the exit code."""
    named = list(sys.argv[1:] if arguments is None else arguments)
    if named == ["--cases"]:
        return _answer_cases()
    options = _parser().parse_args(named)
    try:
        outcome = _verification(options)
    except FairkitError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 -- a command
        return USAGE
    if options.format == "json":
        print_json(record(outcome))
    else:
        echo(*lines(str(options.certificate), outcome))
    return code_of(outcome)


def _answer_cases() -> int:
    """Answer the cases of the conformance suite, which come as lines of standard input."""
    from fairkit_registry.evidence.answering import answers

    for line in answers(sys.stdin):
        put(line + "\n")
    return PASSED


def _verification(options: argparse.Namespace) -> Verification:
    from fairkit_registry.blobs import hash_file
    from fairkit_registry.evidence.certificate import check_data, read_file
    from fairkit_registry.evidence.keys import load_public
    from fairkit_registry.evidence.timestamps import read_roots
    from fairkit_registry.evidence.verifying import check, known_revocations

    raw = read_file(options.certificate)
    trusted = [load_public(path) for path in options.key]
    revocations = known_revocations(options.revocations, trusted, [load_public(path) for path in options.revoker or ()])
    roots = read_roots(options.timestamp_root or ())

    def further(outcome: Verification, found: Certificate) -> None:
        if options.data_sha256 is not None:
            check_data(found, options.data_sha256.strip().lower())
            outcome.held += (f"about the data {found.report.data.sha256[:16]}",)

    digest = None if options.model is None else hash_file(options.model)
    return check(raw, trusted, revocations=revocations, roots=roots, model_sha256=digest, further=further)


def run() -> NoReturn:
    """Run the command, and end the process with its exit code."""
    try:
        code = main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = FAILED
    except Exception as error:
        print(f"internal error: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 -- a command
        code = BUG
    raise SystemExit(code)
