"""`fairkit alternatives`: could the model have been less discriminatory?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import INTERRUPTED, exit_code, progress_bar, say, write

if TYPE_CHECKING:
    from fairkit_alternatives.laws import Law
    from fairkit_alternatives.record import Alternatives


@opt.expanded
def alternatives(
    model: Annotated[str, typer.Argument(metavar="MODEL.onnx", help="The model in use.", show_default=False)],
    *,
    columns: opt.DataOptions,
    test: Annotated[
        str | None, opt.option("--test", "FILE", "Rows that trained no model, this one either.", opt.DATA)
    ] = None,
    selection: Annotated[
        str | None, opt.option("--selection", "FILE", "Rows that choose the pick; default: .3 of --test.", opt.DATA)
    ] = None,
    metric: Annotated[
        str,
        opt.option("--metric", "METRIC:COL", "The disparity: a difference or ratio of a rate. Default column: all."),
    ] = "demographic_parity_difference",
    law: Annotated[
        list[str] | None,
        opt.option(
            "--law",
            "NAME",
            "How trainings are drawn: reweigh (default), settings, seeds, bootstrap, or one of --laws. Repeatable.",
        ),
    ] = None,
    laws: Annotated[
        Path | None,
        opt.option("--laws", "FILE.toml", "Laws of your own: learner, settings and their distributions, draws."),
    ] = None,
    plugin: Annotated[
        list[str] | None, opt.option("--plugin", "NAME", "A method whose models are tried too. Repeatable.")
    ] = None,
    candidate: Annotated[
        list[str] | None, opt.option("--candidate", "GLOB", "ONNX files that are tried too. Repeatable.")
    ] = None,
    loss: Annotated[float, opt.option("--loss", "X", "The loss of accuracy (or cost) that would be accepted.")] = 0.005,
    reduction: Annotated[float, opt.option("--reduction", "X", "The reduction that would count.")] = 0.02,
    share: Annotated[
        float, opt.option("--share", "P", "So rare shall such a model be in one more training: .02 takes 245 draws.")
    ] = 0.02,
    objective: Annotated[
        str, opt.option("--objective", "WHAT", "rate (as many are approved as now), accuracy, or cost=A:B.", opt.POLICY)
    ] = "rate",
    threshold: Annotated[float | None, opt.option("--threshold", "X", "The cutoff of the model in use.")] = None,
    blind: Annotated[bool, typer.Option("--blind", help="Leave out models that read a sensitive column.")] = False,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Say how many draws it takes, and what the test rows can tell; train nothing."),
    ] = False,
    check: Annotated[
        Path | None,
        opt.option(
            "--check", "EVIDENCE.json", "Compute all statements again, and train a drawn tenth of the draws again."
        ),
    ] = None,
    assignments: opt.Assignments = None,
    jobs: Annotated[int | None, opt.Rare("alternatives.jobs", "Draws at a time. Default: one for each core.")] = None,
    confidence: opt.Confidence = None,
    seed: opt.Seed = None,
    state: Annotated[
        Path | None, opt.option("--state", "DIR", "Keeps finished draws; the same command continues.", opt.OUTPUT)
    ] = None,
    save: Annotated[
        Path | None, opt.option("--save", "FILE.onnx", "Where a model that was found goes.", opt.OUTPUT)
    ] = None,
    output: Annotated[
        Path | None, opt.option("--output", "EVIDENCE.json", "Where the evidence goes, to certify it.", opt.OUTPUT)
    ] = None,
    output_format: opt.TableFormat = "table",
    config: opt.ConfigFile = None,
) -> None:
    """Search models with less disparity at little loss, and say what the search shows about them.

    Exit code 1: one was found; 0: none was, and one more training would hardly find one; 3: cannot tell.
    """
    from fairkit.support.escaping import json_text
    from fairkit.support.files import check_writable, write_atomic
    from fairkit_alternatives.search import alternatives as run
    from fairkit_cli.config import load_announced

    for target in (output, save):
        if target is not None:
            check_writable(target)
    if assignments:
        raise ParameterError(
            f"--set {assignments[0]} is no setting of this command; `fairkit alternatives --help` has all"
        )
    settings = load_announced(config)
    audited = opt.audit_settings(opt.AuditOptions(confidence=confidence, seed=seed), settings)
    if test is None and not settings.data.get("test"):
        raise ParameterError("which rows shall tell? Give --test FILE: rows that trained nothing and chose nothing")
    data = opt.load_dataset(columns, settings, file="train" if settings.data.get("train") else "path")
    rows: dict[str, Any] = {
        "test": opt.load_dataset(dataclasses.replace(columns, data=test), settings, file="test"),
        "selection": None
        if selection is None
        else opt.load_dataset(dataclasses.replace(columns, data=selection), settings, file="path"),
        "threshold": threshold if threshold is not None else settings.model.get("threshold"),
    }
    if plan:
        _plan(rows, metric, reduction, share, len(_laws(law, laws)), audited.confidence)
    with progress_bar() as progress:
        if check is not None:
            _check(check, model, data, rows, progress)
            return
        try:
            result = run(
                model,
                data,
                **rows,
                metric=metric,
                laws=_laws(law, laws),
                plugins_tried=opt.split_names(plugin) or (),
                candidates=_files(candidate),
                loss=loss,
                reduction=reduction,
                share=share,
                objective=objective,
                blind=blind,
                confidence=audited.confidence,
                seed=audited.seed,
                jobs=jobs,
                state=state,
                progress=progress,
            )
        except KeyboardInterrupt as error:
            resume_hint = f"finished draws are kept in {state}" if state else "name --state DIR to keep finished draws"
            say(f"interrupted; {resume_hint}")
            raise typer.Exit(INTERRUPTED) from error
    if save is not None and result.verdict == "fail" and result.model is not None:
        write_atomic(save, result.model)
        say(f"wrote {save}")
    elif save is not None:
        say(f"{save} is not written: no model was found for sure")
    text = json_text(result.to_dict()) + "\n"
    if output is not None:
        write_atomic(output, text)
        say(f"wrote {output}; certify it with --auditor alternatives --set alternatives.evidence={output}")
    write(lambda _: text if output_format == "json" else _screen(result), None)
    raise typer.Exit(exit_code(result.verdict))


def _plan(rows: dict[str, Any], metric: str, reduction: float, share: float, laws: int, confidence: float) -> None:
    """Say what a search would take and tell, and end."""
    from fairkit_alternatives.search import planned

    asked = {"confidence": confidence, "loss": 0.0, "reduction": reduction, "share": share}
    draws, least = planned(rows["test"], metric, laws, whole=rows["selection"] is not None, **asked)
    summary = f"{draws} draws of each law. With models that decide 4 % of rows otherwise the test rows tell reductions "
    end = ": cannot tell, take more rows." if least > reduction else "."
    summary += f"from {least:.3f} on; {reduction:g} is asked{end}"
    write(lambda _: summary + "\n", None)
    raise typer.Exit(exit_code("inconclusive" if least > reduction else None))


def _screen(result: Alternatives) -> str:
    """Return the statements, wrapped."""
    import textwrap

    lines, many = [], len(result.columns)
    shared = f", over {many} columns" if many > 1 else ""
    for name, text in result.told():
        lines += textwrap.wrap(text, 80, initial_indent=f"{name:<10} ", subsequent_indent=" " * 11)
    sure = f"{1 - result.about['alpha']:.0%} each{shared}. About these laws and rows, not about all possible models."
    lines += textwrap.wrap(sure, 80)
    return "\n".join(lines) + "\n"


def _laws(names: list[str] | None, file: Path | None) -> list[Law]:
    """Return the named laws, of the file where it declares them; without names, all of the file."""
    from fairkit.support.files import read_small
    from fairkit_alternatives.laws import Law, read_laws

    from_file = {} if file is None else {law.name: law for law in read_laws(read_small(file), str(file))}
    wanted = opt.split_names(names) or list(from_file) or ["reweigh"]
    return [from_file[name] if name in from_file else Law.named(name) for name in wanted]


def _files(globs: list[str] | None) -> dict[str, Path]:
    """Return the files that globs name, by their names."""
    from glob import glob

    result: dict[str, Path] = {}
    for pattern in globs or ():
        paths = sorted(glob(pattern))  # noqa: PTH207 -- absolute patterns, too
        if not paths:
            raise ParameterError(f"--candidate {pattern}: there is no such file")
        result |= {path: Path(path) for path in paths}
    return result


def _check(path: Path, model: str, data: Any, rows: dict[str, Any], progress: Any) -> None:
    """Check evidence, and train a drawn tenth of its draws again."""
    from fairkit_alternatives.record import Alternatives
    from fairkit_alternatives.search import recheck

    evidence = Alternatives.read(path)
    trained = recheck(evidence, model, data, **rows, progress=progress)
    holds = f"holds: every statement follows from the counts, and {trained} draws trained again give the same counts"
    write(lambda _: f"{holds}\n{_screen(evidence)}", None)
