"""Commands that are imported when they are asked for, and values that are read without building a validator.

`fairkit audit` imports what audits need and nothing of the other thirty commands; `fairkit --help` imports none.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import typer.main
from typer.core import TyperGroup

from fairkit.errors import ParameterError, PluginError
from fairkit_cli.helping import group_options, write_commands


class Commands(Mapping[str, Any]):
    """Commands by name, each made at its first use."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def _make(self, name: str) -> Any:
        module, _, attribute = self._places[name].partition(":")
        try:
            value = getattr(import_module(module), attribute)
        except Exception as error:
            if module.startswith("fairkit_cli."):
                raise
            raise PluginError(f"the command {name!r} of the module {module} does not load: {error}") from error
        app = value
        if not isinstance(app, typer.Typer):
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(name)(value)
        command: Any = typer.main.get_command(app)
        command.name = name
        lighten(command)
        inner = getattr(command, "commands", {"": command})
        for each in inner.values() if type(inner) is dict else ():  # those of a lazy group are made when asked for
            group_options(each)
        if not hasattr(command, "commands"):
            say_keys(command, getattr(value, "keys", {}))
        return command


def lazy_group(places: Mapping[str, str], base: type[TyperGroup] = TyperGroup) -> type[TyperGroup]:
    """Make the class of a group whose commands are `places`; see `Commands`. All groups of a class share them."""
    made = Commands(places)

    class Group(base):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            self.commands = made
            lighten(self)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            """Write what each command does, without importing it."""
            write_commands(formatter, places, self.commands)

    return Group


def group_of(places: Mapping[str, str], help: str) -> typer.Typer:
    """Make a group of commands, for the place of a command in `Commands`."""
    app = typer.Typer(
        cls=lazy_group(places), no_args_is_help=True, help=help, add_completion=False, rich_markup_mode=None
    )
    app.callback()(lambda: None)
    return app


def lighten(command: Any) -> None:
    """Let a command's parameters read plain values by themselves.

    typer builds a validator of pydantic for each of them, also for those that nobody typed: a tenth of a second of
    processor time in every command.
    """
    of_typer = command.get_params  # the option --help is made there, too

    def get_params(ctx: Any) -> list[Any]:
        result: list[Any] = of_typer(ctx)
        for parameter in result:
            if getattr(parameter, "_runtime_param", 0) is None:  # as typer has it: not built yet
                parameter._runtime_param = _Plain()
        return result

    command.get_params = get_params
    inner = getattr(command, "commands", None)
    if inner is None:
        _take_once(command)
    else:
        _name_commands(command, inner)
    for each in inner.values() if isinstance(inner, dict) else ():
        lighten(each)


def _take_once(command: Any) -> None:
    """Let a command refuse an option that takes one value and is typed twice: the last would count without a word."""
    make = command.make_parser

    def make_parser(ctx: Any) -> Any:
        parser = make(ctx)
        read = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            opts, rest, order = read(args)
            for param in order:
                if param.param_type_name == "option" and not param.multiple and order.count(param) > 1:
                    typed, several = param.opts[0], "," in str(param.metavar)
                    fix = f"write {typed} {param.metavar}" if several else "leave one out"
                    raise ParameterError(f"{typed} is there twice, and takes one value: {fix}")
            return opts, rest, order

        parser.parse_args = parse_args
        return parser

    command.make_parser = make_parser


def _name_commands(group: Any, commands: Mapping[str, Any]) -> None:
    """Let a group say how another group's command is typed, and which there are where nobody has such a one."""
    resolve = group.resolve_command

    def resolve_command(ctx: Any, args: list[str]) -> Any:
        try:
            return resolve(ctx, args)
        except Exception as error:
            message = str(getattr(error, "message", ""))
            if message.startswith("No such command") and "Did you mean" not in message:
                inner = [name for name, command in _loading(commands) if args[0] in getattr(command, "commands", ())]
                path = ctx.command_path
                hint = f"It is `{path} {inner[0]} {args[0]}`." if inner else f"The commands are: {', '.join(commands)}."
                error.message = f"{message} {hint}"  # type: ignore[attr-defined]
            raise

    group.resolve_command = resolve_command


_GROUP = ("simultaneous", "label_error")
_VARIABLES = {"tracking-uri": "MLFLOW_TRACKING_URI"}
_WHY = ("metric", "people", "together", "calls", "without", "refits")


def say_keys(command: Any, keys: Collection[str]) -> None:
    """Let a command say of an option that it lacks which key took its place, or which commands have it."""
    now = {name: f"group.{name}" for name in _GROUP} | {key.partition(".")[2]: key for key in keys}
    now |= {key.removesuffix(".name"): key for key in keys if key.endswith(".name")}
    if command.name == "why":
        now |= {name: f"why.{name}" for name in _WHY}
    parse = command.parse_args

    def parse_args(ctx: Any, args: list[str]) -> Any:
        try:
            return parse(ctx, args)
        except Exception as error:
            if getattr(getattr(error, "param", None), "name", "") in ("key", "keys"):
                error.message = "`fairkit key new auditor.key` makes one: auditor.key signs, auditor.key.pub verifies"  # type: ignore[attr-defined]
            name = str(getattr(error, "option_name", "")).removeprefix("--")
            if name in _VARIABLES:
                raise ParameterError(f"--{name} is given as the environment variable {_VARIABLES[name]}") from None
            key = now.get(name.replace("-", "_"), now.get(name.replace("-", "_").partition("_")[2]))
            if key is None:
                others = (
                    [
                        each
                        for each, sibling in _siblings(ctx)
                        if any(f"--{name}" in param.opts for param in sibling.params)
                    ]
                    if name
                    else []
                )
                if 0 < len(others) <= 4:
                    error.message = f"No such option: --{name}. It belongs to {' and '.join(others)}."  # type: ignore[attr-defined]
                    error.possibilities = None  # type: ignore[attr-defined]
                raise
            raise ParameterError(f"--{name} is given as --set {key}=VALUE, or in fairkit.toml") from None

    command.parse_args = parse_args


def _siblings(ctx: Any) -> Iterator[tuple[str, Any]]:
    """Yield the other commands, as they are typed."""
    for name, one in _loading(ctx.find_root().command.commands):
        for each, command in _loading(getattr(one, "commands", {"": one})):
            yield f"`fairkit {name} {each}".rstrip() + "`", command


def _loading(commands: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the commands that load."""
    for name in commands:
        with suppress(PluginError):
            yield name, commands[name]


class _Plain:
    """Reads nothing, text, and files without conditions; all else is left to typer."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value as the command gets it."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        wanted = param.type_descriptor.annotation
        if not param.type_descriptor.is_choice:
            if several and isinstance(value, list | tuple):
                for kind in (str, Path):
                    if wanted == list[kind] and all(_simple(item, kind) for item in value):  # type: ignore[valid-type]
                        return [kind(item) for item in value]
            elif wanted in (str, Path) and _simple(value, wanted):
                return wanted(value)
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _simple(value: Any, kind: type) -> bool:
    """Say whether a value is text, and for a path whether typer would find nothing to refuse."""
    if type(value) is not str:
        return False
    return kind is str or not Path(value).exists() or os.access(value, os.R_OK)
