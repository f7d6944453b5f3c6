"""Print the oldest versions that pyproject.toml allows, as pip's constraints: ``numpy>=1.26`` is ``numpy==1.26``."""

from __future__ import annotations

import itertools
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

TOOLS = {"pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "hatchling", "mypy", "ruff"}
"""What runs the tests, and is not what they test."""


def oldest() -> list[str]:
    """Return one constraint for each requirement with a lower bound."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    texts = [*project["dependencies"], *itertools.chain.from_iterable(extras)]
    found = {}
    for requirement in map(Requirement, texts):
        bounds = [one.version for one in requirement.specifier if one.operator == ">="]
        if bounds and requirement.name not in TOOLS:
            found[requirement.name] = f"{requirement.name}=={bounds[0]}"
    return sorted(found.values())


if __name__ == "__main__":
    sys.stdout.write("\n".join(oldest()) + "\n")
