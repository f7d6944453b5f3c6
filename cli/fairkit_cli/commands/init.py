"""`fairkit init`: the guide. Six questions, metrics with reasons, a limit with its origin, a fairkit.toml."""

from __future__ import annotations

import io
import shlex
import shutil
import sys
import tempfile
import textwrap
from contextlib import chdir
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ConfigError, DataError, MissingExtraError
from fairkit.support.escaping import toml_text
from fairkit_cli.options import TableFormat, option, split_names
from fairkit_cli.terminal.output import BUG, echo, say

if TYPE_CHECKING:
    from fairkit_guide.advice import Advice


_FILE = "fairkit.toml"


def init(
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="The CSV or Parquet file, or the address, to look at.")
    ] = None,
    label: Annotated[str | None, option("--label", "COL", "The outcome column.")] = None,
    favorable: Annotated[
        str | None, option("--favorable", "V", "The label's value that is good for the person.")
    ] = None,
    sensitive: Annotated[str | None, option("--sensitive", "A,B", "Sensitive columns.")] = None,
    decides: Annotated[
        str | None,
        option("--decides", "give|take", "The favorable decision gives something wanted, or spares a burden."),
    ] = None,
    labels: Annotated[
        str | None, option("--labels", "trusted|past|selective|none", "What is known of the true outcomes.")
    ] = None,
    errors: Annotated[str | None, option("--errors", "refusal|approval|both", "Which error hurts people.")] = None,
    use: Annotated[str | None, option("--use", "screen|rank|score|price", "How the result is used.")] = None,
    law: Annotated[str | None, option("--law", "PACK", "The law or house rule that applies (`fairkit packs`).")] = None,
    groups: Annotated[str | None, option("--groups", "may|may-not", "Whether the model may read the groups.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a fairkit.toml that is there.")] = False,
    output_format: TableFormat = "table",
) -> None:
    """Ask at most six questions, name the metrics that fit with the reasons, and write a fairkit.toml."""
    from fairkit.support.files import write_atomic

    target = Path(_FILE)
    if target.exists() and not force:
        raise ConfigError(f"there is a {_FILE} here already; --force replaces it")
    if data is None:
        write_atomic(target, settings_text(None, None))
        say(f"wrote {target} without a look at a table: name yours, as in `fairkit init loans.csv`")
        return
    answers = {"decides": decides, "labels": labels, "errors": errors, "use": use, "law": law, "groups": groups}
    roles = {"label": label, "favorable": favorable, "sensitive": split_names(sensitive and [sensitive])}
    advice = _guided(data, roles, answers)
    write_atomic(target, settings_text(data, advice))
    if output_format == "json":
        import json

        echo(*json.dumps(advice.to_dict(), indent=2).splitlines())
    else:
        echo(*_shown(advice))
    say(f"wrote {target}; read it before you rely on it")


def _guided(data: str, roles: dict[str, Any], given: dict[str, str | None]) -> Advice:
    """Ask on a terminal for what no option answers, and return the advice."""
    from fairkit_guide.advice import advise, check_answers, tree
    from fairkit_guide.roles import guess_roles

    check_answers(given)
    typed = {key: value for key, value in given.items() if value is not None}
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return advise(data, **roles, **typed)
    guess = guess_roles(data)
    if roles["favorable"] is None and roles["label"] in (None, guess.get("label")) and "asked" in guess:
        roles = roles | {
            "favorable": _choose(f"Which value of {guess['label']} is good for the person?", guess["asked"])
        }
    if roles["sensitive"] is None and "sensitive" not in guess:
        raise DataError("no column is known to hold groups; name them with `sensitive`, as in `sensitive=sex,race`")
    for question in tree()["questions"]:
        key = question["key"]
        if (
            key in typed
            or (key == "law" and not _packs())
            or (key == "errors" and typed.get("labels") in ("past", "none"))
        ):
            continue
        choices = dict(question["answers"])
        if key == "law":
            choices |= _packs()
        default = question["default"]
        if key == "labels" and roles["label"] is None and "label" not in guess:
            default = "none"
        typed[key] = _choose(question["asks"], choices, default, question["matters"])
    return advise(data, **roles, **typed)


def _packs() -> dict[str, str]:
    from fairkit.plugins.finding import pack_plugins

    return {pack.name: "" for plugin in pack_plugins()[0] for pack in plugin.packs if "@" not in pack.name}


def _choose(asks: str, choices: Any, default: str | None = None, matters: str = "") -> str:
    """Ask one question: its choices by number, the default by Return."""
    names: list[str] = list(choices)
    lines = [(0, asks), *([(1, f"Why this matters: {matters}")] if matters else [])]
    for number, name in enumerate(names, 1):
        meaning = choices[name] if isinstance(choices, dict) else ""
        lines.append(
            (1, f"{number}  {name}{f': {meaning}' if meaning else ''}{'  [Return]' if name == default else ''}")
        )
    echo("", *_wrapped(lines))
    while True:
        typed = typer.prompt("  Number or name", default=default or "", show_default=False).strip()
        if typed in names:
            return str(typed)
        if typed.isdecimal() and 1 <= int(typed) <= len(names):
            return names[int(typed) - 1]
        echo(f"  {typed!r} is none of them; type 1 to {len(names)}")


def _shown(advice: Advice) -> list[str]:
    """Return the advice in lines that fit the terminal, with what nobody answered first."""
    lines = advice.lines()
    if advice.defaults:
        defaults = ", ".join(f"{key} = {advice.answers[key]}" for key in advice.defaults)
        lines.insert(0, (0, f"Not answered, so the default: {defaults}"))
    return _wrapped(lines)


def _wrapped(lines: list[tuple[int, str]]) -> list[str]:
    width = max(40, shutil.get_terminal_size((100, 24)).columns)
    return [
        part
        for depth, text in lines
        for part in textwrap.wrap(
            text, width, initial_indent="  " * depth, subsequent_indent="  " * (depth + 1), break_on_hyphens=False
        )
    ]


def settings_text(data: str | None, advice: Advice | None) -> str:
    """Return the file's text: the roles, the rules with their origin, and the reasons as facts."""
    roles = {} if advice is None else dict(advice.data)

    def line(key: str, example: str) -> str:
        return f"{key} = {_toml(roles[key])}" if key in roles else f"# {key} = {example}"

    lines = [
        "# Settings of fairkit; options on the command line win.",
        "",
        "[data]",
        f"path = {_toml(data)}" if data is not None else '# path = "data.parquet"',
        line("label", '"approved"'),
        line("favorable", '"yes"'),
        line("sensitive", '["sex", "race", "sex+race", "age:25:60"]'),
        line("predictions", '{ decision = "approved", score = "p" }  # in place of a model'),
        '# join = { path = "people.parquet", on = "person_id" }',
        '# drop = ["id"]',
        "",
        "[audit]",
        'auditors = ["group"]',
        "confidence = 0.95",
        "seed = 0",
    ]
    if advice is None:
        rule = {"metric": "demographic_parity_difference", "sensitive": "sex", "max": 0.1}
        return "\n".join(
            [*lines, "", "# `fairkit init TABLE` says which metric fits", "# [[policy]]", *_keys(rule, "# "), ""]
        )
    lines += ["", f"# {advice.situation}.", f"# {advice.origin}"]
    for rule in advice.rules:
        lines += ["", "[[policy]]", *_keys(rule)]
    if not advice.rules:
        lines += ["# [[policy]]", *_keys({"metric": advice.metrics[0].metric, advice.side: 0.0}, "# ")]
    lines += ["", "# why: these facts stand in the report and in the certificate", "[about]", *_keys(advice.about)]
    return "\n".join([*lines, ""])


def _keys(table: dict[str, Any], before: str = "") -> list[str]:
    return [f"{before}{key} = {_toml(value)}" for key, value in table.items()]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(item)}' for key, item in value.items())} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, (int, float)):
        return f"{value!r}"
    try:
        return toml_text(value)
    except ValueError as error:
        raise ConfigError(f"{value!r}: {error}; rename it") from error


# `fairkit demo`: train, audit, repair by policy, certify and promote, on built-in data, offline.


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
        _type(
            command,
            "mitigate", "--max", RULE, "--data", "train.parquet", "--test", "test.parquet",
            "--label", str(ROLES["label"]), "--favorable", str(ROLES["favorable"]), "--sensitive", "sex",
            "--drop", "would_repay", "--output", "fair.onnx",
        )  # fmt: skip
        _say("The new file alone carries all that an audit needs:")
        _type(command, "audit", "fair.onnx", "--data", "test.parquet", "--max", RULE)
        _evidence(command)


def _write_data() -> None:
    import pyarrow.parquet as pq

    from fairkit_datasets.loans import loans_table, loans_truth

    pq.write_table(loans_table(TRAIN_ROWS, seed=1), "train.parquet")
    pq.write_table(loans_table(TEST_ROWS, seed=2), "test.parquet")
    rates = loans_truth().approved_given_repay["sex"]
    by_sex = ", ".join(f"{rate:.1%} of the {sex} ones" for sex, rate in rates.items())
    _say(
        f"{TRAIN_ROWS + TEST_ROWS:,} synthetic loan applications. The bank's past decisions are biased by a "
        f"known amount: of the applicants who would repay it approved {by_sex}. A model learns from those decisions."
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
