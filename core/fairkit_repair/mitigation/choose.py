"""Which method, and which model it repairs: from names and files to objects, checked."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from fairkit import plugins
from fairkit.data.task import choose_task
from fairkit.errors import ParameterError, PluginError, did_you_mean
from fairkit.mitigators import Mitigator
from fairkit.objective import Objective
from fairkit.parameters.declare import parse_parameters
from fairkit.settings import ModelOptions
from fairkit.support.calls import named_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit_onnx.model import OnnxModel


def as_mitigator(plugin: str | type[Mitigator] | Mitigator, parameters: Mapping[str, Any]) -> Mitigator:
    """Make a mitigator with checked parameters from a name, a class, or an instance (whose own they change)."""
    if isinstance(plugin, Mitigator):
        if not parameters:
            return plugin
        fields = {field.name: getattr(plugin.parameters, field.name) for field in dataclasses.fields(plugin.parameters)}
        return type(plugin)(parse_parameters(plugin.Parameters, fields | dict(parameters), owner=plugin.name))
    return find_mitigator(plugin).with_values(parameters)


def find_mitigator(plugin: str | type[Mitigator]) -> type[Mitigator]:
    """Return a mitigator's class by its plugin's name."""
    if not isinstance(plugin, str):
        return plugin
    loaded = plugins.load(plugin)
    if not loaded.mitigators:
        names = [row.found.name for row in plugins.explain_all() if "mitigator" in row.kinds]
        hint = did_you_mean(plugin, names, what="mitigators")
        raise PluginError(f"the plugin {plugin!r} has no mitigator. {hint}")
    return loaded.mitigators[0]


def plugins_of(methods: Iterable[str]) -> list[plugins.Plugin]:
    """Return the plugins of methods, where they are installed."""
    known = {found.name for found in plugins.find()}
    return [plugins.load(name) for name in methods if name in known]


def base_model(method: Mitigator, model: Any, options: ModelOptions | None = None) -> OnnxModel | None:
    """Load the model that a method repairs; None for methods that train their own."""
    if method.stage == "post" and model is None:
        raise ParameterError(f"{method.name} repairs a given model: name it with `model`")
    if method.stage != "post" and model is not None:
        raise ParameterError(f"{method.name} trains its own model: leave out `model`")
    return loaded_base(model, options)


def aim_of(data: Dataset, task: Task | None, text: str | None, value: str | None, *, given: bool) -> Objective:
    """Return what thresholds are set for; an objective is for two outcomes."""
    if choose_task(data, task) == "binary":
        return Objective.parse(text, value, given=given)
    if (text, value) != (None, None):
        raise ParameterError("an objective is for approvals, and outcomes here are not two: leave it out")
    return Objective()


def check_objective(method: Mitigator | type[Mitigator], objective: Objective) -> None:
    """Refuse an objective that a rule on scores cannot be set for."""
    if objective.kind not in getattr(method, "objectives", ("accuracy",)):
        raise ParameterError(
            f"{method.name} cannot be set for the objective {objective.kind}; threshold-optimizer can, and a search "
            "under a policy finds what does"
        )


def loaded_base(model: Any, options: ModelOptions | None) -> OnnxModel | None:
    """Load a model that is repaired, with what the user says of its outputs; None where there is none."""
    from fairkit_onnx.model import OnnxModel

    said = dataclasses.replace(options, task=None) if options is not None else ModelOptions()
    if model is None:
        names = [field.name for field in dataclasses.fields(said)]
        said.refuse(names, "it is about the outputs of a given model, and none is given")
        return None
    if hasattr(model, "predict") and not isinstance(model, OnnxModel):
        raise ParameterError(
            f"`model` is {named_class(model)} in memory, and a file is repaired: write it by fairkit.to_onnx(model, X, "
            "'model.onnx') and give that"
        )
    base = model if isinstance(model, OnnxModel) else OnnxModel.load(model)
    base.said = said.over(base.said)
    return base
