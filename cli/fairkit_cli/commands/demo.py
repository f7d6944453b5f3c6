"""`fairkit demo`: train, audit, repair by policy, certify and promote, on built-in data, offline."""

from __future__ import annotations

import io
import shlex
import tempfile
from contextlib import chdir
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from fairkit.errors import DataError, MissingExtraError
from fairkit_cli.options import option
from fairkit_cli.terminal.output import BUG, echo

TRAIN_ROWS, TEST_ROWS = 20_000, 10_000
ROLES = {"label": "decision", "favorable": "approved", "sensitive": ["sex"], "drop": ["would_repay"]}
RULE = "equal_opportunity_difference:sex=0.05"


def demo(
    ctx: typer.Context,
    keep: Annotated[Path | None, option("--keep", "FOLDER", "Keep the files there; the folder must be new.")] = None,
) -> None:
    """Show a complete run on synthetic loans: train, audit, repair by policy, certify, promote."""
    if keep is not None:
        if keep.exists():
            raise DataError(f"{str(keep)!r} is there already; give --keep a folder that is not")
        keep.mkdir(parents=True)
        _run(keep, ctx.find_root().command)
        echo("", f"The files are in {keep}.")
        return
    with tempfile.TemporaryDirectory(prefix="fairkit-demo-") as folder:
        _run(Path(folder), ctx.find_root().command)
    echo("", "These files are gone now; `fairkit demo --keep FOLDER` keeps them.")


def _run(folder: Path, command: Any) -> None:
    for name in ("lightgbm", "scipy"):
        try:
            import_module(name)
        except ImportError as error:
            raise MissingExtraError(name, "all") from error
    with chdir(folder):
        _write_data()
        _train()
        _type(command, "audit", "plain.onnx", "--data", "test.parquet", "--max", RULE)
        _say(
            "The rule is broken. A policy is all that a repair needs: the search predicts each method's chance of "
            "passing, trains the most accurate model that is 95 % sure to pass, and looks at the test rows once."
        )
        _type(command, "mitigate", "--max", RULE, *_data_options(), "--output", "fair.onnx")
        _say("The new file alone carries all that an audit needs:")
        _type(command, "audit", "fair.onnx", "--data", "test.parquet", "--max", RULE)
        _evidence(command)


def _write_data() -> None:
    import pyarrow.parquet as pq

    from fairkit_datasets.loans import loans_table, loans_truth

    pq.write_table(loans_table(TRAIN_ROWS, seed=1), "train.parquet")
    pq.write_table(loans_table(TEST_ROWS, seed=2), "test.parquet")
    rates = loans_truth().approved_given_repay["sex"]
    told = ", ".join(f"{rate:.1%} of the {sex} ones" for sex, rate in rates.items())
    _say(
        f"{TRAIN_ROWS + TEST_ROWS:,} synthetic loan applications. The bank's past decisions are biased by a "
        f"known amount: of the applicants who would repay it approved {told}. A model learns from those decisions."
    )


def _train() -> None:
    """Train a model without mitigation, as a bank would have one."""
    from fairkit.data.loading import load_data
    from fairkit.data.table import Table
    from fairkit.fitted import Run
    from fairkit_onnx.write.export import export_bytes
    from fairkit_repair.learners import fit_learner

    table = Table.from_dataset(load_data("train.parquet", **ROLES))  # type: ignore[arg-type]
    Path("plain.onnx").write_bytes(export_bytes(fit_learner("lightgbm", table, Run()), table))


def _evidence(command: Any) -> None:
    _say(
        "Evidence: both models are audited again and signed, and kept in a registry that promotes only a model that "
        "keeps the policy."
    )
    _say(
        "The demo's key is written without a passphrase, so that nothing is asked; leave --no-passphrase out of yours."
    )
    _type(command, "key", "new", "auditor.key", "--no-passphrase")
    for name in ("plain", "fair"):
        certificate = f"{name}.cert.json"
        _type(
            command,
            "certify", f"{name}.onnx", "--data", "test.parquet", "--max", RULE,
            "--key", "auditor.key", "--output", certificate, quiet=True,
        )  # fmt: skip
        _type(command, "registry", "add", "loans", f"{name}.onnx", "--certificate", certificate)
    _type(command, "registry", "alias", "loans", "production", "--max", RULE, "--key", "auditor.key.pub")
    for version in ("loans@1", "loans@2"):
        _type(command, "registry", "promote", version, "production")


def _data_options() -> list[str]:
    return [
        "--data", "train.parquet", "--test", "test.parquet", "--label", str(ROLES["label"]),
        "--favorable", str(ROLES["favorable"]), "--sensitive", "sex", "--drop", "would_repay",
    ]  # fmt: skip


def _say(text: str) -> None:
    echo("", text, "")


def _type(command: Any, *arguments: str, quiet: bool = False) -> None:
    """Show a command as one would type it, and run it by the root command."""
    import contextlib

    echo(f"$ fairkit {shlex.join(arguments)}")
    with contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext():
        code = command.main(list(arguments), prog_name="fairkit", standalone_mode=False)
    echo(f"exit code {code or 0}", "")
    if code == BUG:
        raise typer.Exit(BUG)
