"""What the commands of `fairkit ask` share: options, tables of answers, numbers in people of 100."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairkit.errors import ParameterError

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset


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


def people(value: float | None, interval: tuple[float, float] | None = None) -> str:
    """Write a difference in people of 100, with its interval if there is one."""
    ends = "" if interval is None else f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    return f"{100 * (value or 0):.1f} of 100{ends}"
