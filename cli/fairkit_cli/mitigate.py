"""`fairkit mitigate`: data in, a mitigated ONNX file out, with the audits before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.output import exit_code, print_json, put, say, write

if TYPE_CHECKING:
    from fairkit.config import Config
    from fairkit.mitigation.run import MitigationResult

PluginName = Annotated[str | None, typer.Option("--plugin", metavar="NAME", help="The method.")]
BaseModel = Annotated[
    str | None,
    typer.Option("--model", metavar="BASE.onnx", help="The model to repair, for post-processing methods."),
]
Learner = Annotated[
    str | None,
    typer.Option(
        "--learner",
        metavar="NAME",
        help="What trains: lightgbm, xgboost, logistic, linear, forest, mlp, or one that a plugin brings.",
    ),
]
TestFile = Annotated[
    str | None,
    typer.Option(
        "--test", metavar="FILE", help="Rows to audit on; else some are held out.", rich_help_panel=opt.DATA
    ),
]
Holdout = Annotated[
    float | None,
    typer.Option(
        "--holdout", metavar="SHARE", help="The share held out; default 0.2.", rich_help_panel=opt.DATA
    ),
]
Target = Annotated[
    Path | None,
    typer.Option("--output", metavar="OUT.onnx", help="Where the model goes.", rich_help_panel=opt.OUTPUT),
]
RegisterName = Annotated[
    str | None,
    typer.Option(
        "--register", metavar="NAME", help="Add both models to the registry.", rich_help_panel=opt.OUTPUT
    ),
]
RegistryFolder = Annotated[
    Path | None, typer.Option("--registry", help="The registry's folder.", rich_help_panel=opt.OUTPUT)
]
Repeats = Annotated[
    int | None,
    typer.Option(
        "--repeats",
        metavar="K",
        min=1,
        help="Train K models, all but the first on rows drawn anew, and show how far retraining goes. Default: 1.",
    ),
]
Threads = Annotated[int | None, typer.Option("--threads", metavar="N", help="Threads; default: all cores.")]


@opt.expanded
def mitigate(
    plugin: PluginName = None,
    model: BaseModel = None,
    *,
    columns: opt.DataOptions,
    where: opt.EngineOptions,
    sandbox: opt.SandboxOptions,
    test: TestFile = None,
    holdout: Holdout = None,
    task: opt.TaskName = None,
    assignments: opt.Assignments = None,
    learner: Learner = None,
    maximum: opt.MaxRules = None,
    minimum: opt.MinRules = None,
    confidence: opt.Confidence = None,
    seed: opt.Seed = None,
    threads: Threads = None,
    repeats: Repeats = None,
    output: Target = None,
    register: RegisterName = None,
    registry: RegistryFolder = None,
    output_format: opt.PageFormat = "table",
    config: opt.ConfigFile = None,
) -> None:
    """Train or repair a model so that it treats people more alike; show it before and after."""
    from fairkit.config import load_config
    from fairkit.files import check_writable
    from fairkit.mitigation.run import mitigate as run
    from fairkit_cli.audit import drawing
    from fairkit_cli.progress import progress_bar

    settings = load_config(config)
    target = _target(output, settings)
    check_writable(target)
    name = _plugin(plugin, settings)
    audited = opt.audit_settings(
        opt.AuditOptions(maximums=maximum, minimums=minimum, confidence=confidence, seed=seed, task=task),
        settings,
    )
    carried = _carried(model)
    train = opt.load_dataset(
        columns, settings, carried, file="train" if settings.data.get("train") else "path"
    )
    with drawing(output_format), progress_bar() as progress:
        result = run(
            name,
            train,
            test=_test_data(test, columns, settings, carried),
            holdout=_first(holdout, settings.mitigate.get("holdout"), 0.2),
            model=model,
            learner=learner or settings.mitigate.get("learner"),
            task=audited.options.task,
            seed=_first(seed, settings.mitigate.get("seed"), audited.seed),
            threads=threads,
            policy=audited.policy,
            confidence=audited.confidence,
            repeats=_first(repeats, settings.mitigate.get("repeats"), 1),
            output=target,
            progress=progress,
            **where.arguments(),
            **_parameters(name, assignments or (), settings),
        )
    registered = [] if register is None else _register(register, registry, result, target, settings)
    _show(result, target, registered, output_format)
    raise typer.Exit(exit_code(result.after.verdict))


def _target(output: Path | None, config: Config) -> Path:
    if output is not None:
        return output
    if config.mitigate.get("output"):
        return config.file(str(config.mitigate["output"]))
    raise ParameterError(
        "where should the model go? Give --output OUT.onnx, or [mitigate] output in fairkit.toml"
    )


def _plugin(plugin: str | None, config: Config) -> str:
    chosen = plugin or config.mitigate.get("plugin")
    if chosen is None:
        raise ParameterError("which method? Give --plugin NAME; `fairkit plugins` lists them")
    return str(chosen)


def _carried(model: str | None) -> dict[str, Any]:
    """Return the data settings that a base model carries."""
    if model is None:
        return {}
    from fairkit.onnx.read import safety

    return safety.embedded_settings(safety.parse(safety.read_bytes(Path(model)), model))


def _test_data(test: str | None, typed: opt.DataOptions, config: Config, carried: dict[str, Any]) -> Any:
    """Load the rows to audit on, where a file of their own is named."""
    import dataclasses

    if test is None and (typed.data is not None or not config.data.get("test")):
        return None
    return opt.load_dataset(dataclasses.replace(typed, data=test), config, carried, file="test")


def _parameters(plugin: str, assignments: Any, config: Config) -> dict[str, Any]:
    """Combine ``[mitigate.<plugin>]`` with --set KEY=VALUE (PLUGIN.KEY=VALUE means the same); --set wins."""
    from fairkit.parameters.declare import split_assignment

    given = dict(config.mitigators.get(plugin, {}))
    for text in assignments:
        key, value = split_assignment(text)
        given[key.removeprefix(f"{plugin}.")] = value
    return given


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _register(
    name: str, folder: Path | None, result: MitigationResult, target: Path, config: Config
) -> list[str]:
    """Add the model before and after to the registry, the second with the first as its parent."""
    import tempfile

    from fairkit_registry.store.location import locate, witnesses
    from fairkit_registry.store.lookup import register_pair

    path = config.registry.get("path")
    place = locate(folder, configured=None if path is None else config.file(str(path)))
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary) / "before.onnx"
        base.write_bytes(result.baseline_onnx)
        known = witnesses(config.registry.get("witness"), folder=config.path and config.path.parent)
        first, second = register_pair(name, base, target, place, method=result.plugin, witnesses=known)
    return [first.reference, second.reference]


def _show(result: MitigationResult, target: Path, registered: list[str], output_format: str) -> None:
    if output_format == "json":
        record = result.to_dict() | {"output": str(target), "registered": registered}
        print_json(record)
        return
    if output_format == "html":
        from fairkit_cli.html.comparison import mitigation_page

        put(mitigation_page(result))
    else:
        from fairkit_cli.text.comparison import comparison

        write(lambda terminal: comparison(result, terminal=terminal))
    say(f"wrote {target}")
    for reference in registered:
        say(f"registered {reference}")
