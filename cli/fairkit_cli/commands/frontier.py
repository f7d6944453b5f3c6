"""`fairkit frontier`: train along a parameter, and see what fairness costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.formats import text_of
from fairkit_cli.terminal.output import INCONCLUSIVE, INTERRUPTED, PASSED, exit_code, progress_bar, say, write

if TYPE_CHECKING:
    from fairkit_cli.config import Config
    from fairkit_repair.frontiers.training import Sweep

Page = Annotated[Path | None, opt.option("--report", "FILE", "Write the result there, not to the screen.", opt.OUTPUT)]


@opt.expanded
def frontier(
    plugin: Annotated[
        list[str] | None, opt.option("--plugin", "NAME", "A method; repeatable, all in one picture.")
    ] = None,
    *,
    vary: Annotated[
        list[str] | None,
        opt.option(
            "--vary",
            "KEY=A,B,C",
            "Values of a parameter to try. KEY=LOW:HIGH:N is a range, with :log a logarithmic one; with several "
            "plugins write PLUGIN.KEY.",
        ),
    ] = None,
    search: Annotated[
        list[str] | None,
        opt.option(
            "--search",
            "KEY=LOW:HIGH",
            "A range from which an optimiser chooses values; with :log on a logarithmic scale.",
        ),
    ] = None,
    budget: Annotated[int, opt.option("--budget", "N", "How many points each search tries.", min=1)] = 20,
    assignments: opt.Assignments = None,
    columns: opt.DataOptions,
    where: opt.EngineOptions,
    test: Annotated[
        str | None,
        opt.option(
            "--test", "FILE", "Rows to report the picked model on. Default: some of the data are held out.", opt.DATA
        ),
    ] = None,
    holdout: Annotated[
        float | None,
        opt.option(
            "--holdout",
            "SHARE",
            "The share of the rows held out for validation, and again for the test. Default: 0.2.",
            opt.DATA,
        ),
    ] = None,
    performance: Annotated[
        str | None, opt.option("--performance", "METRIC", "The metric of the vertical axis. Default: the objective's.")
    ] = None,
    disparity: Annotated[
        str | None,
        opt.option(
            "--disparity",
            "METRIC:COL",
            "The metric of the horizontal axis, or subgroup_difference. Default: demographic_parity_difference of the "
            "first sensitive column.",
        ),
    ] = None,
    objective: opt.Objective = None,
    value: opt.Value = None,
    limit: Annotated[
        float | None,
        opt.option(
            "--limit",
            "X",
            "Pick the model with the best performance among those that will surely keep a disparity of at most X on "
            "the test rows. The exit code is the verdict's.",
        ),
    ] = None,
    sure: Annotated[
        float | None,
        opt.Rare(
            "frontier.sure", "With --limit: how large the predicted chance must be that the test rows keep it (0.95)."
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        opt.Rare(
            "frontier.alpha",
            "Without --limit: the model with the largest A · performance + (1-A) · (1 - disparity) is picked (0.75).",
        ),
    ] = None,
    learner: Annotated[str | None, opt.option("--learner", "NAME", "The learner of the methods that take one.")] = None,
    repeats: Annotated[
        int | None,
        opt.Rare(
            "frontier.repeats",
            "Train each point of the front so often, all but the first on rows drawn anew, and show how far it moves "
            "(1).",
        ),
    ] = None,
    jobs: Annotated[
        int | None, opt.Rare("frontier.jobs", "How many points are trained at a time. Default: one for each core.")
    ] = None,
    threads: Annotated[int | None, opt.Rare("frontier.threads", "How many threads each training uses.")] = None,
    confidence: opt.Confidence = None,
    seed: opt.Seed = None,
    state: Annotated[
        Path | None,
        opt.option(
            "--state", "FILE", "A file that keeps the finished points; the same command continues from it.", opt.OUTPUT
        ),
    ] = None,
    output: Annotated[
        Path | None, opt.option("--output", "OUT.onnx", "Where the picked model goes.", opt.OUTPUT)
    ] = None,
    output_format: opt.PageFormat = "table",
    report: Page = None,
    config: opt.ConfigFile = None,
) -> None:
    """Train along parameters, draw performance against a disparity, and pick a model by a rule."""
    import dataclasses

    from fairkit.support.files import check_writable, write_atomic
    from fairkit_cli.commands.audit import drawing
    from fairkit_cli.config import load_announced
    from fairkit_repair.frontiers.run import Choice, own_auditor
    from fairkit_repair.frontiers.run import frontier as run

    for target in (output, report, state):
        if target is not None:
            check_writable(target)
    settings = load_announced(config)
    for name, number, good in (("alpha", alpha, (0, 1)), ("jobs", jobs, (1, None)), ("repeats", repeats, (1, None))):
        if number is not None and not (good[0] <= number and (good[1] is None or number <= good[1])):
            raise ParameterError(
                f"--set frontier.{name}={number}: it is at least {good[0]}{' and at most 1' if good[1] else ''}"
            )
    auditor = own_auditor(disparity)
    of_auditors = [text for text in assignments or [] if auditor and text.startswith(f"{auditor}.")]
    of_methods = [text for text in assignments or [] if text not in of_auditors]
    sweeps = read_sweeps(plugin or [], vary or [], search or [], of_methods, settings)
    audit_options = opt.AuditOptions(confidence=confidence, seed=seed, assignments=of_auditors)
    audited = opt.audit_settings(audit_options, settings)
    data = opt.load_dataset(columns, settings, file="train" if settings.data.get("train") else "path")
    test_data = None
    if test is not None or (columns.data is None and settings.data.get("test")):
        test_data = opt.load_dataset(dataclasses.replace(columns, data=test), settings, file="test")
    try:
        with drawing(output_format), progress_bar() as progress:
            result = run(
                sweeps,
                data,
                test=test_data,
                holdout=0.2 if holdout is None else holdout,
                performance=performance,
                disparity=disparity,
                parameters=audited.parameters,
                choice=Choice(limit=limit, alpha=0.75 if alpha is None else alpha, sure=0.95 if sure is None else sure),
                budget=budget,
                learner=learner,
                seed=audited.seed,
                jobs=jobs,
                threads=threads,
                confidence=audited.confidence,
                repeats=repeats or 1,
                objective=objective,
                value=value,
                state=state,
                progress=progress,
                **where.arguments(),
            )
    except KeyboardInterrupt as error:
        resume_hint = (
            f"finished points are kept in {state}; run again to go on" if state else "name --state FILE to keep points"
        )
        say(f"interrupted; {resume_hint}")
        raise typer.Exit(INTERRUPTED) from error
    if output is not None and result.model is not None:
        write_atomic(output, result.model)
        say(f"wrote {output}")
    write(lambda terminal: text_of(result, output_format, terminal), report)
    raise typer.Exit(exit_code(result.verdict) or (PASSED if result.sure and not result.is_constant else INCONCLUSIVE))


def read_sweeps(
    plugins: Sequence[str], vary: Sequence[str], search: Sequence[str], fixed: Sequence[str], config: Config
) -> list[Sweep]:
    """Sort ``PLUGIN.KEY=...`` by plugin; with one plugin its name may be left out."""
    from fairkit.parameters import split_assignment
    from fairkit_repair.frontiers.training import Bounds, Sweep, parse_values

    names = opt.split_names(plugins) or [str(name) for name in [config.mitigate.get("plugin")] if name]
    if not names:
        raise ParameterError("which methods? Give --plugin NAME, repeatable; `fairkit plugins` lists them")
    parts: dict[str, dict[str, dict[str, Any]]] = {name: {"vary": {}, "search": {}, "fixed": {}} for name in names}

    def place(kind: str, texts: Sequence[str]) -> None:
        for text in texts:
            key, value = split_assignment(text)
            owner = next((name for name in names if key.startswith(f"{name}.")), None)
            if owner is None and len(names) > 1:
                raise ParameterError(f"whose parameter is {key!r}? Write PLUGIN.{key}=..., one of {', '.join(names)}")
            short = key if owner is None else key.removeprefix(f"{owner}.")
            read: Any = value
            if kind == "vary":
                read = parse_values(value, short)
            elif kind == "search":
                read = Bounds.parse(value, short)
            parts[owner or names[0]][kind][short] = read

    place("vary", vary)
    place("search", search)
    place("fixed", fixed)
    return [
        Sweep(
            plugin=name,
            vary=part["vary"],
            search=part["search"],
            fixed={
                key: value
                for key, value in (dict(config.mitigators.get(name, {})) | part["fixed"]).items()
                if (key not in part["vary"] and key not in part["search"]) or key in part["fixed"]
            },
        )
        for name, part in parts.items()
    ]
