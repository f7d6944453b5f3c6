"""Parameters of methods: declared as frozen dataclasses, and read from text, TOML or Python values."""

from fairkit.parameters.declare import (
    ParameterInfo,
    current_names,
    describe_parameters,
    parameter,
    parameters_to_dict,
    parse_parameters,
    split_assignment,
)

__all__ = [
    "ParameterInfo",
    "current_names",
    "describe_parameters",
    "parameter",
    "parameters_to_dict",
    "parse_parameters",
    "split_assignment",
]
