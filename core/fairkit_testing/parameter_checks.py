"""Checks on declared parameters: each is documented, typed, and refuses what it cannot mean."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, Literal, get_args, get_origin

from fairkit.errors import FairkitError
from fairkit.parameters.declare import ParameterInfo, describe_parameters, parse_parameters
from fairkit_testing.require import ContractError, only_fairkit_errors, require

NONSENSE = "not-a-number-nor-a-choice"


def check_parameters_documented(cls: Any) -> None:
    """`Parameters` is a frozen dataclass of keywords; each field has a type that text can give, and a sentence."""
    declared = cls.Parameters
    require(dataclasses.is_dataclass(declared), f"{cls.__name__}.Parameters is no dataclass; see fairkit.parameter")
    options = getattr(declared, "__dataclass_params__", None)
    require(
        options is not None and options.frozen,
        f"{cls.__name__}.Parameters can be changed; make it @dataclass(frozen=True, slots=True, kw_only=True)",
    )
    for field in dataclasses.fields(declared):
        require(field.kw_only, f"the parameter {field.name} is positional; give the dataclass kw_only=True")
        help_text = str(field.metadata.get("help", ""))
        require(
            len(help_text) > 5,
            f"the parameter {field.name} has no help; declare it with fairkit.parameter(default, help='...')",
        )
    for parameter in describe_parameters(declared):
        require(parameter.type, f"the parameter {parameter.name} has no type that people understand")


def check_parameters_validated(cls: Any) -> None:
    """Defaults are allowed, as text too; unknown names, nonsense and numbers out of range are refused."""
    declared, owner = cls.Parameters, str(cls.name)
    needed = {p.name for p in describe_parameters(declared) if p.default is None}
    with only_fairkit_errors("an unknown parameter was given", required=True):
        parse_parameters(declared, {"no-such-parameter": "1"}, owner=owner)
    hints = typing.get_type_hints(declared)
    for field, parameter in zip(dataclasses.fields(declared), describe_parameters(declared), strict=True):
        if parameter.default is not None and not needed:
            _default_is_allowed(declared, owner, parameter)
        for value in _refused_values(field, hints[field.name]):
            with only_fairkit_errors(f"{field.name}={value!r} was given", required=True):
                cls(parse_parameters(declared, {field.name: value}, owner=owner))


def _default_is_allowed(declared: Any, owner: str, parameter: ParameterInfo) -> None:
    """What `fairkit plugins show` prints as the default can be typed, and means the default."""
    if "pairs" in parameter.type:
        return
    try:
        typed = parse_parameters(declared, {parameter.name: parameter.default}, owner=owner)
    except FairkitError as error:
        raise ContractError(f"the default of {parameter.name} is refused when it is typed: {error}") from error
    usual = getattr(parse_parameters(declared, {}, owner=owner), parameter.name)
    require(
        getattr(typed, parameter.name) == usual,
        f"{parameter.name}={parameter.default} means {getattr(typed, parameter.name)!r}, not the default {usual!r}",
    )


def _refused_values(field: dataclasses.Field[Any], hint: Any) -> list[Any]:
    """Return values that the declaration rules out."""
    kinds = _kinds(hint)
    refused: list[Any] = []
    if not kinds & {str, Any} and kinds:
        refused.append(NONSENSE)
    if kinds & {int, float}:
        metadata = field.metadata
        step = 1 if int in kinds else 1e-9
        low, high = metadata.get("minimum"), metadata.get("maximum")
        above, below = metadata.get("above"), metadata.get("below")
        refused += [low - step] if low is not None else []
        refused += [high + step] if high is not None else []
        refused += [above] if above is not None else []
        refused += [below] if below is not None else []
    return refused


def _kinds(hint: Any) -> set[Any]:
    """Return the simple types that a declared type is made of; literals count as their own kind."""
    if hint is Any or hint is str or hint in (int, float, bool):
        return {hint}
    if get_origin(hint) is Literal:
        return {"literal"}
    arguments = [one for one in get_args(hint) if one is not Ellipsis]
    return {kind for one in arguments for kind in _kinds(one)}


CHECKS = (check_parameters_documented, check_parameters_validated)
