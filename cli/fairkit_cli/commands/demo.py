"""`fairkit demo`: train, audit, repair by policy, certify and promote, on built-in data, offline."""

from __future__ import annotations

import io
import shlex
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import DataError
from fairkit_cli.options import option
from fairkit_cli.terminal.output import BUG, echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.data.table import Table
    from fairkit.fitted import FittedModel

_STEPS = 12
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
    missing = [name for name in ("lightgbm", "scipy") if not _is_installed(name)]
    if missing:
        _say(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed: the model below is a plain "
            "logistic regression, and its repair is left out. pip install 'fairkit[all]' runs everything."
        )
    with chdir(folder):
        _write_data()
        _train(learner=not missing)
        _type(command, "audit", "plain.onnx", "--data", "test.parquet", "--max", RULE)
        if missing:
            _evidence(command, ["plain"])
            return
        _say(
            "The rule is broken. A policy is all that a repair needs: the search predicts every alternative's chance "
            "of passing, trains the most accurate one that surely will, and looks at the test rows once."
        )
        _type(command, "mitigate", "--max", RULE, *_data_options(), "--output", "fair.onnx")
        _say("The new file alone carries all that an audit needs:")
        _type(command, "audit", "fair.onnx", "--data", "test.parquet", "--max", RULE)
        _evidence(command, ["plain", "fair"])


def _is_installed(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # an installation that is broken
        return False


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


def _train(*, learner: bool) -> None:
    """Train a model without mitigation, as a bank would have one; without a learner, by a few steps of Newton's."""
    from fairkit.data.loading import load_data
    from fairkit.data.table import Table
    from fairkit.fitted import Run
    from fairkit_onnx.write.export import export_bytes
    from fairkit_repair.learners import fit_learner

    table = Table.from_dataset(load_data("train.parquet", **ROLES))  # type: ignore[arg-type]
    fitted = fit_learner("lightgbm", table, Run()) if learner else _logistic(table)
    Path("plain.onnx").write_bytes(export_bytes(fitted, table))


def _logistic(table: Table) -> FittedModel:
    """Fit a logistic regression by Newton's method, with numpy alone."""
    import numpy as np

    from fairkit_onnx.write.encode import fit_encoder
    from fairkit_onnx.write.estimators import GraphEstimator, add_linear, add_link
    from fairkit_onnx.write.export import TabularModel

    class Logistic(GraphEstimator):
        """Weights and an intercept."""

        def __init__(self, weights: Any) -> None:
            self.weights = weights

        def score(self, matrix: Any, task: Any) -> Any:
            return 1 / (1 + np.exp(-(matrix @ self.weights[:-1] + self.weights[-1])))

        def add_to(self, graph: Any, matrix: str, task: Any, width: int) -> str:
            return add_link(graph, add_linear(graph, matrix, self.weights[:-1], self.weights[-1]), task)

    encoder = fit_encoder(table.columns, table.features, text="onehot", standardise=True, fill=True)
    x = np.column_stack([encoder.transform(table.columns).astype(float), np.ones(len(table))])
    weights = np.zeros(x.shape[1])
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-(x @ weights)))
        curvature = (x * (p * (1 - p))[:, None]).T @ x + 1e-3 * np.eye(len(weights))
        weights += np.linalg.solve(curvature, x.T @ (table.target - p) - 1e-3 * weights)
    return TabularModel(encoder=encoder, estimator=Logistic(weights), task="binary")


def _evidence(command: Any, names: Sequence[str]) -> None:
    models = "both models are audited again and signed, and kept" if len(names) > 1 else "the audit is signed, and kept"
    _say(f"Evidence: {models} in a registry that lets only a model be promoted that keeps the policy.")
    _say(
        "The demo's key is written without a passphrase, so that nothing is asked; leave --no-passphrase out of yours."
    )
    _type(command, "key", "new", "auditor.key", "--no-passphrase")
    for name in names:
        certificate = f"{name}.cert.json"
        _type(
            command,
            "certify", f"{name}.onnx", "--data", "test.parquet", "--max", RULE,
            "--key", "auditor.key", "--output", certificate, quiet=True,
        )  # fmt: skip
        _type(command, "registry", "add", "loans", f"{name}.onnx", "--certificate", certificate)
    _type(command, "registry", "alias", "loans", "production", "--max", RULE, "--key", "auditor.key.pub")
    for version in range(1, len(names) + 1):
        _type(command, "registry", "promote", f"loans@{version}", "production")


def _data_options() -> list[str]:
    return [
        "--data", "train.parquet", "--test", "test.parquet", "--label", str(ROLES["label"]),
        "--favorable", str(ROLES["favorable"]), "--sensitive", "sex", "--drop", "would_repay",
    ]  # fmt: skip


def _say(text: str) -> None:
    import textwrap

    echo("", *textwrap.wrap(text, 100), "")


def _type(command: Any, *arguments: str, quiet: bool = False) -> None:
    """Show a command as one would type it, and run it by the root command."""
    import contextlib

    echo(f"$ fairkit {shlex.join(arguments)}")
    with contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext():
        code = command.main(list(arguments), prog_name="fairkit", standalone_mode=False)
    echo(f"exit code {code or 0}", "")
    if code == BUG:
        raise typer.Exit(BUG)
