"""The commands that `commands.py` measures, for one table with its model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LARGE = ("loans-lightgbm",)
"""Too many rows for the methods that hold all pairs or train for long."""

MITIGATORS = (
    "reweigh",
    "massaging",
    "project",
    "correlation-remover",
    "disparate-impact-remover",
    "fairgbm",
    "budro",
    "sensei",
    "exponentiated-gradient",
    "rto",
    "threshold-optimizer",
    "reject-option",
    "shift-inference",
)
REPAIRS = ("rto", "threshold-optimizer", "reject-option", "shift-inference")
"""These take a model."""
ONE_COLUMN = ("fairgbm",)
"""By default this balances all crossed sensitive columns, whose smallest groups are too small on these tables."""


@dataclass(frozen=True)
class Case:
    """A table on disk with a model, and the options that name its roles."""

    name: str
    data: Path
    model: Path
    options: tuple[str, ...]

    @property
    def sensitive(self) -> str:
        """The first sensitive column."""
        return self.options[self.options.index("--sensitive") + 1].split(",")[0]


def commands(one: Case, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Name the commands of one case."""
    roles = ["--data", str(one.data), *one.options]
    model, out = str(one.model), str(folder / f"{one.name}-out.onnx")
    certificate, key = str(folder / f"{one.name}.cert.json"), str(folder / "key")
    audits = {
        "group": [],
        "consistency": [],
        "restricted-dro": ["--set", "restricted-dro.epsilon=0.1"],
        "dif": ["--set", "dif.epsilon=0.1"],
    }
    for auditor, told in audits.items():
        yield f"audit {auditor}", ["audit", model, *roles, "--auditor", auditor, *told]
    yield ("audit page", ["audit", model, *roles, "--format", "html", "--output", str(folder / f"{one.name}.html")])
    yield "certify", ["certify", model, *roles, "--key", key, "--output", certificate]
    yield (
        "verify --recompute",
        [
            "verify", certificate, "--model", model, "--key", f"{key}.pub",
            "--data", str(one.data), "--recompute",
        ],
    )  # fmt: skip
    yield "compare", ["compare", model, model, *roles]
    yield from registry_commands(one, folder)
    for name in () if one.name in LARGE else MITIGATORS:
        base = ["--model", model] if name in REPAIRS else []
        base += ["--set", f"sensitive={one.sensitive}"] if name in ONE_COLUMN else []
        yield f"mitigate {name}", ["mitigate", "--plugin", name, *base, *roles, "--output", out]
    if one.name not in LARGE:
        swept = ["--plugin", "reweigh", "--plugin", "fairgbm", "--vary", "fairgbm.tolerance=0.02,0.05,0.1"]
        swept += ["--set", f"fairgbm.sensitive={one.sensitive}"]
        yield "frontier", ["frontier", *swept, *roles, "--output", out]


def registry_commands(one: Case, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Name the commands on a registry: two versions of the case's model, the second with a certificate."""
    certificate, public = str(folder / f"{one.name}.cert.json"), str(folder / "key.pub")
    where = ["--registry", str(folder / "registry")]
    yield "registry add", ["registry", "add", one.name, str(one.model), *where]
    again = ["registry", "add", one.name, str(one.model), "--certificate", certificate]
    yield "registry add again", [*again, *where]
    yield "registry alias set", ["registry", "alias", one.name, "production", "--key", public, *where]
    for name in ("list", "check"):
        yield f"registry {name}", ["registry", name, *where]
    yield "registry show", ["registry", "show", f"{one.name}@2", *where]
    yield "registry diff", ["registry", "diff", f"{one.name}@1", f"{one.name}@2", *where]
    yield "registry verify", ["registry", "verify", f"{one.name}@2", "--key", public, *where]
    yield "registry promote", ["registry", "promote", f"{one.name}@2", "production", "--dry-run", *where]


def light() -> Iterator[tuple[str, list[str]]]:
    """Name the commands that have no data."""
    yield "--help", ["--help"]
    yield "audit --help", ["audit", "--help"]
    yield "completion: fairkit", [COMPLETE, "fairkit "]
    yield "completion: fairkit audit --", [COMPLETE, "fairkit audit --"]
    yield "plugins", ["plugins"]


COMPLETE = "(complete)"
"""Stands for a command that a shell runs when Tab is pressed."""
