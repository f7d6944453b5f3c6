"""`fairkit ask compare`: how much the differences of two models, or of two versions of one, differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairkit.commands import console, end
from fairkit.errors import ParameterError
from fairkit.reading import MEANING
from fairkit.support.escaping import visible

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.results.comparisons import Comparison


def option(name: str, metavar: str, text: str, **more: Any) -> Any:
    """Declare an option that takes a value."""
    return typer.Option(name, metavar=metavar, help=text, **more)


Format = Annotated[Literal["table", "json"], option("--format", "NAME", "How the result is written: table or json.")]
Assignments = Annotated[
    list[str] | None, option("--set", "KEY=VALUE", "A parameter of the auditor `correspondence`; repeatable.")
]
Sensitive = Annotated[
    str | None, option("--sensitive", "COL", "The column of groups. Default: the one that the file names.")
]
Answer = Annotated[str, option("--answer", "COL", "The column of answers in [0, 1].")]


def compare(
    before: Annotated[str, typer.Argument(metavar="A.parquet", help="The answers of the first model.")],
    after: Annotated[str, typer.Argument(metavar="B.parquet", help="Those of the other one, to the same plan.")],
    *,
    sensitive: Sensitive = None,
    answer: Answer = "answer",
    assignments: Assignments = None,
    maximums: Annotated[
        list[str] | None, option("--max", "METRIC:COL=X", "A policy rule: the metric must be at most X. Repeatable.")
    ] = None,
    confidence: Annotated[float, option("--confidence", "C", "The confidence of every interval.")] = 0.95,
    output_format: Format = "table",
) -> None:
    """Compare two models that answered the same plan: how much more does the name matter to the second?

    The number is the difference of the two models' differences, on the same documents, names and contexts. With --max
    either model is judged; the exit code is that of the verdict on the second, as of `fairkit compare`.
    """
    import fairkit
    from fairkit.models.columns import PredictedColumns
    from fairkit.results.comparisons import Comparison, told_apart
    from fairkit.results.rules import Rule
    from fairkit.settings import AuditSettings
    from fairkit_comparing.windows import changes_between

    settings = AuditSettings(
        auditors=("correspondence",), parameters={"correspondence": parameters_of(assignments)},
        policy=tuple(Rule.parse(text, "max") for text in maximums or ()), confidence=confidence,
    )  # fmt: skip
    tables = answers_data(before, sensitive, answer), answers_data(after, sensitive, answer)
    changes = changes_between([PredictedColumns(answer=answer)], tables, settings)
    reports = [fairkit.audit(None, data, settings=settings) for data in tables]
    result = Comparison(
        models=tuple(replace(one.model, name=one.data.name) for one in reports), data=reports[1].data,
        changes=(tuple(changes),), confidence=settings.confidence,
        policy=tuple(one.policy for one in reports if one.policy),
    )  # fmt: skip
    result = told_apart(result, [before, after])
    if output_format == "json":
        console().json(result.to_dict())
    else:
        console().write(compared_text(result))
    raise end(result.verdict)


def answers_data(path: str, sensitive: str | None, answer: str) -> Dataset:
    """Load a table of answers."""
    import fairkit
    from fairkit.data.answers import carried_by

    column = sensitive or next(iter(carried_by(path).get("sensitive", ())), None)
    if column is None:
        raise ParameterError("which column holds the groups? Name it with --sensitive COL")
    return fairkit.load_data(path, sensitive=[column], predictions={"answer": answer})


def parameters_of(assignments: list[str] | None) -> dict[str, Any]:
    """Return the auditor's parameters that were set, with the auditor's name before them or without."""
    from fairkit.parameters.declare import split_assignment

    settings = dict(split_assignment(text) for text in assignments or ())
    return {key.removeprefix("correspondence."): value for key, value in settings.items()}


def compared_text(result: Comparison) -> str:
    """Return what is said about two models, a line for each pair of groups."""
    names, lines = [model.name for model in result.models], []
    for name, rules in zip(names, result.policy, strict=bool(result.policy)):
        lines += [f"{name}: {rule.verdict.upper()}: {rule.reason}" for rule in rules]
    for one in result.changes[0]:
        lines.append(
            f"{one.parameters['pair']}: {people(one.before)} in {names[0]}, {people(one.after)} in {names[1]}; "
            f"the second minus the first: {people(one.difference, one.interval)}: {MEANING[one.outcome]}"
        )
    doubts = (one.parameters.get("inconclusive") for one in result.changes[0])
    lines += [f"undecided: {doubt}" for doubt in dict.fromkeys(doubts) if doubt]
    return "".join(f"{visible(line)}\n" for line in lines)


def people(value: float | None, interval: tuple[float, float] | None = None) -> str:
    """Write a difference in people of 100, with its interval if there is one."""
    ends = "" if interval is None else f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    return f"{100 * (value or 0):.1f} of 100{ends}"
