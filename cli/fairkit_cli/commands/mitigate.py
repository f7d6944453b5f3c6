"""`fairkit mitigate`: data in, a mitigated ONNX file out, with the audits before and after."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError, PowerError
from fairkit.support.lazy_dataclass import dataclass
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import INCONCLUSIVE, exit_code, print_json, progress_bar, put, say, write

if TYPE_CHECKING:
    from fairkit.results.rules import Rule
    from fairkit_cli.config import Config
    from fairkit_repair.mitigation.run import MitigationResult


@opt.expanded
def mitigate(
    plugin: Annotated[str | None, opt.option("--plugin", "NAME", "The method.")] = None,
    model: Annotated[
        str | None, opt.option("--model", "BASE.onnx", "The model to repair, for post-processing methods.")
    ] = None,
    *,
    columns: opt.DataOptions,
    sandbox: opt.SandboxOptions,
    test: Annotated[
        str | None, opt.option("--test", "FILE", "Rows to audit on; else some are held out.", opt.DATA)
    ] = None,
    holdout: Annotated[
        float | None, opt.option("--holdout", "SHARE", "The share held out; default 0.2.", opt.DATA)
    ] = None,
    task: opt.TaskName = None,
    outputs: opt.OutputOptions,
    assignments: opt.Assignments = None,
    learner: Annotated[
        str | None,
        opt.option(
            "--learner",
            "NAME",
            "What trains: lightgbm, xgboost, logistic, linear, forest, mlp, or one that a plugin brings.",
        ),
    ] = None,
    maximum: opt.MaxRules = None,
    minimum: opt.MinRules = None,
    search: opt.SearchOptions,
    objective: opt.Objective = None,
    value: opt.Value = None,
    confidence: opt.Confidence = None,
    seed: opt.Seed = None,
    threads: Annotated[int | None, opt.Rare("mitigate.threads", "Threads; default: all cores.")] = None,
    repeats: Annotated[
        int | None,
        opt.Rare(
            "mitigate.repeats",
            "Train so many models, all but the first on rows drawn anew, and show how far retraining goes. Default: 1.",
        ),
    ] = None,
    output: Annotated[Path | None, opt.option("--output", "OUT.onnx", "Where the model goes.", opt.OUTPUT)] = None,
    register: Annotated[
        str | None, opt.option("--register", "NAME", "Add both models to the registry.", opt.OUTPUT)
    ] = None,
    registry: Annotated[
        Path | None, typer.Option("--registry", help="The registry's folder.", rich_help_panel=opt.OUTPUT)
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Show all alternatives, all numbers before and after, and all notes. Default: ten lines.",
            rich_help_panel=opt.OUTPUT,
        ),
    ] = False,
    output_format: opt.PageFormat = "table",
    config: opt.ConfigFile = None,
) -> None:
    """Train or repair a model so that it treats people more alike; show it before and after.

    With a policy and no --plugin, every method that can meet the policy is tried, and the best model at the objective
    that will surely pass is written; the test rows are looked at once.
    """
    from fairkit.support.files import check_writable
    from fairkit_cli.commands.audit import drawing
    from fairkit_cli.config import load_announced

    settings = load_announced(config)
    target = _target(output, settings)
    check_writable(target)
    typed = opt.AuditOptions(
        maximums=maximum, minimums=minimum, confidence=confidence, seed=seed, task=task, **vars(outputs)
    )
    if model is None:  # settings of the file are about the model that is audited
        settings = dataclasses.replace(settings, model={})
    audited = opt.audit_settings(typed, settings)
    name = _plugin(plugin, settings, audited.policy)
    carried = _carried(model)
    train = opt.load_dataset(columns, settings, carried, file="train" if settings.data.get("train") else "path")
    shared: dict[str, Any] = {
        "test": _test_data(test, columns, settings, carried),
        "holdout": opt.first_known(holdout, settings.mitigate.get("holdout"), 0.2),
        "model": model,
        "options": audited.options,
        "learner": learner or settings.mitigate.get("learner"),
        "seed": opt.first_known(seed, settings.mitigate.get("seed"), audited.seed),
        "threads": threads,
        "policy": audited.policy,
        "confidence": audited.confidence,
        "output": target,
        "objective": objective or (None if value else settings.mitigate.get("objective")),
        "value": value or (None if objective else settings.mitigate.get("value")),
    }
    again = opt.first_known(repeats, settings.mitigate.get("repeats"), 1)
    wish = Plan(name, tuple(assignments or ()), search, again, audited.options.task)
    with drawing(output_format), progress_bar() as progress:
        result = _searched_or_run(wish, train, shared | {"progress": progress}, settings)
    registered = [] if register is None else _register(register, registry, result, target, settings)
    _show(result, target, registered, output_format, everything=everything)
    raise typer.Exit(
        exit_code(result.after.verdict) or (INCONCLUSIVE if result.is_constant or result.is_useless else 0)
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """Whether to search or to run one method, and what decides that."""

    plugin: str | None
    assignments: tuple[str, ...]
    search: opt.SearchOptions
    repeats: int
    task: Any


def _searched_or_run(plan: Plan, train: Any, shared: dict[str, Any], settings: Config) -> MitigationResult:
    """Search under the policy where one can be; else run the named method as it is set."""
    from fairkit_cli.helping import as_options
    from fairkit_repair.mitigation.run import mitigate
    from fairkit_repair.repairing.preparing import can_choose
    from fairkit_repair.repairing.run import repair

    parameters = {} if plan.plugin is None else _parameters(plan.plugin, plan.assignments, settings)
    plain = plan.repeats > 1 or plan.task not in (None, "binary")
    if plan.plugin is not None and (plain or not can_choose(plan.plugin, shared["policy"], parameters, train)):
        if plan.search.typed():
            raise ParameterError(
                f"{plan.search.typed()[0]} is for a search under a policy, and here {plan.plugin} runs as it is set: "
                "leave it out, or give a policy that the method can meet, and not its tolerance"
            )
        more = {"repeats": plan.repeats, "task": plan.task}
        return mitigate(plan.plugin, train, **shared, **more, **parameters)
    if plain:
        raise ParameterError(
            "a search under a policy runs on this machine, trains its pick once, and tells the task from the label: "
            "leave out mitigate.repeats and --task, or name one method with --plugin"
        )
    options = plan.search.arguments(settings)
    if plan.plugin is not None:
        if options["methods"]:
            raise ParameterError("give --plugin or --set mitigate.methods=, not both")
        options |= {"methods": [plan.plugin], "unconstrained": False, "anyway": True}
    given = {plan.plugin: parameters} if plan.plugin else _of_methods(plan.assignments, settings)
    try:
        return repair(train, **shared, **options, parameters=given)
    except PowerError as error:
        say(as_options(str(error)))
        raise typer.Exit(INCONCLUSIVE) from error


def _of_methods(assignments: Sequence[str], config: Config) -> dict[str, dict[str, Any]]:
    """Combine ``[mitigate.METHOD]`` with --set METHOD.KEY=VALUE."""
    from fairkit.parameters import split_assignment
    from fairkit_repair.mitigation.choose import find_mitigator

    parameters: dict[str, dict[str, Any]] = {name: dict(values) for name, values in config.mitigators.items()}
    for text in assignments:
        key, value = split_assignment(text)
        owner, dot, inner = key.partition(".")
        if not dot:
            raise ParameterError(
                f"--set {text!r} does not say whose parameter it is; write METHOD.KEY=VALUE, as in "
                "--set threshold-optimizer.min_group=50"
            )
        parameters.setdefault(find_mitigator(owner).name, {})[inner] = value
    return parameters


def _target(output: Path | None, config: Config) -> Path:
    if output is not None:
        return output
    if config.mitigate.get("output"):
        return config.file(str(config.mitigate["output"]))
    raise ParameterError("where should the model go? Give --output OUT.onnx, or [mitigate] output in fairkit.toml")


def _plugin(plugin: str | None, config: Config, policy: Sequence[Rule]) -> str | None:
    chosen = plugin or config.mitigate.get("plugin")
    if chosen is None and not policy:
        raise ParameterError(
            "which method? Give --plugin NAME (`fairkit plugins` lists them), or a policy, as in "
            "--max demographic_parity_difference:sex=0.05, and the search finds one"
        )
    return None if chosen is None else str(chosen)


def _carried(model: str | None) -> dict[str, Any]:
    """Return the data settings that a base model carries."""
    if model is None:
        return {}
    from fairkit_onnx.read import graph as safety

    return safety.embedded_settings(safety.parse(safety.read_bytes(Path(model)), model))


def _test_data(test: str | None, typed: opt.DataOptions, config: Config, carried: dict[str, Any]) -> Any:
    """Load the rows to audit on, where a file of their own is named."""
    if test is None and (typed.data is not None or not config.data.get("test")):
        return None
    return opt.load_dataset(dataclasses.replace(typed, data=test), config, carried, file="test")


def _parameters(plugin: str, assignments: Any, config: Config) -> dict[str, Any]:
    """Combine ``[mitigate.<plugin>]`` with --set KEY=VALUE (PLUGIN.KEY=VALUE means the same); --set wins."""
    from fairkit.parameters import split_assignment

    parameters = dict(config.mitigators.get(plugin, {}))
    for text in assignments:
        key, value = split_assignment(text)
        parameters[key.removeprefix(f"{plugin}.")] = value
    return parameters


def _register(name: str, folder: Path | None, result: MitigationResult, target: Path, config: Config) -> list[str]:
    """Add the model before and after to the registry, the second with the first as its parent."""
    import tempfile

    from fairkit_registry.store.registry import register_pair

    folder_path = config.registry_folder(folder)
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary) / "before.onnx"
        base.write_bytes(result.baseline_onnx)
        first, second = register_pair(
            name, base, target, folder_path, method=result.plugin, witnesses=config.witnesses()
        )
    return [first.reference, second.reference]


def _show(
    result: MitigationResult, target: Path, registered: list[str], output_format: str, *, everything: bool
) -> None:
    if output_format == "json":
        print_json(result.to_dict() | {"output": str(target), "registered": registered})
        return
    if output_format == "html":
        from fairkit_cli.formats import html

        put(html(result))
    else:
        from fairkit_cli.pages.mitigation import brief_page, mitigation_page
        from fairkit_cli.render.text import text_page

        page = (mitigation_page if everything else brief_page)(result)
        write(lambda terminal: text_page(page, terminal=terminal))
    say(f"wrote {target}")
    for reference in registered:
        say(f"registered {reference}")
