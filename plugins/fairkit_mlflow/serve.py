"""`fairkit serve-hook`: take an MLflow alias back where no certificate holds."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from fairkit.errors import MissingExtraError, ParameterError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import FAILED, PASSED, echo, say

SHORTEST = 16


def serve_hook(
    *,
    keys: Annotated[list[Path], opt.option("--key", "PUB", "Public key that you trust (repeatable).")],
    secret_file: Annotated[
        Path | None, opt.option("--secret-file", "FILE", "The webhook's secret, at least 16 bytes; not with --once.")
    ] = None,
    tracking_uri: Annotated[
        str | None, opt.option("--tracking-uri", "URI", "MLflow's server; default: MLFLOW_TRACKING_URI.")
    ] = None,
    alias: Annotated[
        list[str] | None, opt.option("--alias", "NAME", "Watch over this alias (repeatable); default: all.")
    ] = None,
    certificates: Annotated[
        Path | None, opt.option("--certificates", "FOLDER", "Further certificates, beside those of runs and models.")
    ] = None,
    host: Annotated[str, opt.option("--host", "ADDRESS", "Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0: any free one.")] = 8000,
    every: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Look at all aliases so often, for lost webhooks; 0: never.")
    ] = 300,
    once: Annotated[
        bool, typer.Option("--once", help="Look at all aliases now, and end: 1 where one was taken back.")
    ] = False,
) -> None:
    """Receive MLflow's webhooks about aliases: one without a certificate that holds and passes is taken back.

    A certificate counts where a key that you trust has signed it, it is about the version's very ONNX file, it is not
    revoked, and its policy passes. It is looked for beside the model, in its run (the evaluator writes it there) and in
    --certificates. A webhook comes after the fact: an alias can be taken back, never prevented.
    """
    from fairkit_registry.evidence.keys import load_public

    if once == (secret_file is not None):
        raise ParameterError("give --secret-file FILE to listen, or --once to look at all aliases now")
    if certificates is not None and not certificates.is_dir():
        raise ParameterError(f"--certificates {str(certificates)!r} is no folder")
    secret = b"" if secret_file is None else _secret(secret_file)
    guard = _guard(tracking_uri, [load_public(path) for path in keys], alias or (), certificates)
    if once:
        found = guard.check_all()
        echo(*map(str, found))
        taken = any(one.state in ("TAKEN BACK", "NOT LOOKED AT") for one in found)
        raise typer.Exit(FAILED if taken else PASSED)
    _serve(guard, secret, (host, port), every)


def _secret(path: Path) -> bytes:
    from fairkit.support.files import FileError, explain

    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise FileError(explain(error, "cannot read", path)) from error
    if len(secret) < SHORTEST:
        raise ParameterError(f"{path} holds fewer than {SHORTEST} bytes; a secret is longer")
    return secret


def _guard(uri: str | None, keys: Any, aliases: Any, folder: Path | None) -> Any:
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise MissingExtraError("mlflow", "mlflow") from error
    from fairkit_mlflow.aliases import Guard

    return Guard(client=MlflowClient(uri, uri), keys=keys, aliases=frozenset(aliases), folder=folder)


def _serve(guard: Any, secret: bytes, address: tuple[str, int], every: float) -> None:
    from fairkit.support.files import FileError, explain
    from fairkit_mlflow.hook import HookServer

    lock, ended = threading.Lock(), threading.Event()  # one look at a time

    def look(name: str, alias: str) -> None:
        with lock:
            outcome = guard.check(name, alias)
        if outcome is not None:
            say(str(outcome))

    def reconcile() -> None:
        while True:
            try:
                with lock:
                    for outcome in guard.check_all():
                        if outcome.state != "stays":
                            say(str(outcome))
            except Exception as error:  # MLflow may be away for a while: the next round is another try
                say(f"the aliases could not be looked at: {error}")
            if ended.wait(every):
                return

    try:
        server = HookServer(address, secret, look, lambda why: say(f"an alias could not be looked at: {why}"))
    except OSError as error:
        raise FileError(explain(error, "cannot listen at", Path(f"{address[0]}:{address[1]}"))) from error
    if every:
        threading.Thread(target=reconcile, daemon=True).start()
    echo(f"listening at http://{server.server_address[0]!s}:{server.server_address[1]}/")
    try:
        server.serve_forever()
    finally:
        ended.set()
        server.server_close()
