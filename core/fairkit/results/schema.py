"""Checking JSON from outside against the schemas that fairkit publishes."""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib.resources import files
from typing import Any

from fairkit.errors import DataError


@cache
def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``fairkit.report/1``."""
    schema: dict[str, Any] = json.loads((files("fairkit") / "schemas" / "report-1.json").read_text("utf-8"))
    return schema


def validate_report(record: Any) -> None:
    """Check a report that came from outside."""
    from jsonschema import Draft202012Validator

    error = next(iter(Draft202012Validator(report_schema()).iter_errors(record)), None)
    if error is not None:
        where = "/".join(str(part) for part in error.absolute_path) or "its top level"
        raise DataError(f"this is not a fairkit.report/1 record: at {where}: {error.message[:200]}")
    _check_numbers(record)


def _check_numbers(value: Any) -> None:
    """Refuse whole numbers that no float holds, which JSON may have."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise DataError("this is not a fairkit.report/1 record: it has a number that no float holds")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        _check_numbers(one)
