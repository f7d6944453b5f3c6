"""The build: takes the modules that a certificate's check needs from fairkit's source tree, under a name of its own."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NAME = "fairkit_verify"
SOURCES = {
    "fairkit": "core",
    "fairkit_cli": "cli",
    "fairkit_registry": "registry",
    "fairkit_all_inputs": "plugins",
    "fairkit_why": "plugins",
}
"""Where each package of ours lies in the source tree."""

STARTS = (
    "fairkit_all_inputs.checking",
    "fairkit.results.policy",
    "fairkit.results.schema",
    "fairkit_cli.text.verified",
    "fairkit_registry.evidence.answering",
    "fairkit_registry.evidence.consistency",
    "fairkit_registry.evidence.keys",
    "fairkit_registry.evidence.pins",
    "fairkit_registry.evidence.verifying",
    "fairkit_why.checking",
)
"""What the command imports; further modules are those that these import when they are loaded."""

DATA = (
    "fairkit/schemas/report-1.json",
    "fairkit_registry/evidence/declared.json",
    "fairkit_registry/schemas/fairness-audit-1.schema.json",
)
_IMPORT = re.compile(rf"^(\s*from |\s*import )({'|'.join(SOURCES)})(?=[.\s])", re.MULTILINE)
_RESOURCE = re.compile(rf'\bfiles\("({"|".join(SOURCES)})"\)')


def _file(module: str) -> Path | None:
    package = module.partition(".")[0]
    if package not in SOURCES:
        return None
    path = ROOT / SOURCES[package] / module.replace(".", "/")
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)


def _imported(path: Path) -> Iterator[str]:
    """Yield what a module imports when it is loaded; not for types, and not inside functions."""
    waiting: list[ast.stmt] = list(ast.parse(path.read_text("utf-8")).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and not ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += [*node.body, *node.orelse]
        elif isinstance(node, ast.Try | ast.With | ast.ClassDef):
            waiting += node.body


def closure() -> dict[str, Path]:
    """Return the modules of ours that the verifier needs, by name."""
    modules: dict[str, Path] = {}
    waiting = list(STARTS)
    while waiting:
        module = waiting.pop()
        path = _file(module)
        if path is not None and module not in modules:
            modules[module] = path
            waiting += _imported(path)
    return modules


def rewritten(text: str) -> str:
    """Return a module's text with our packages under the verifier's own name."""
    text = _IMPORT.sub(rf"\1{NAME}.\2", text)
    text = _RESOURCE.sub(rf'files("{NAME}.\1")', text)
    return text.replace("pip install 'fairkit[", f"pip install '{NAME.replace('_', '-')}[")


def assemble(target: Path) -> None:
    """Write the package of the small verifier into an empty folder."""
    for name in ("__init__.py", "__main__.py", "command.py"):
        (target / name).write_text(rewritten((HERE / name).read_text("utf-8")), "utf-8")
    for module, path in closure().items():
        relative = path.relative_to(ROOT / SOURCES[module.partition(".")[0]])
        file = target / relative
        file.parent.mkdir(parents=True, exist_ok=True)
        # a package's face names what is not here
        face = relative.name == "__init__.py" and len(relative.parts) == 2
        file.write_text("" if face else rewritten(path.read_text("utf-8")), "utf-8")
    for name in DATA:
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / SOURCES[name.partition("/")[0]] / name, file)
    for folder in {one.parent for one in target.rglob("*.py")}:
        for each in (folder, *folder.parents):
            if each == target:
                break
            (each / "__init__.py").touch()
    (target / "py.typed").touch()
    shutil.copyfile(ROOT / "LICENSE", target / "LICENSE")


class AssembleHook(BuildHookInterface[Any]):
    """Puts the assembled package into wheels and source distributions; a wheel made of the latter takes its copy."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling."""
        package = HERE / NAME
        if not package.is_dir():
            package = Path(self.directory) / "assembled" / NAME
            shutil.rmtree(package, ignore_errors=True)
            package.mkdir(parents=True)
            assemble(package)
        build_data["force_include"][str(package)] = NAME

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was assembled."""
        shutil.rmtree(Path(self.directory) / "assembled", ignore_errors=True)
