"""The house stands as designed: who imports whom, and what a light import may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = {
    "numpy",
    "pandas",
    "onnx",
    "onnxruntime",
    "sklearn",
    "torch",
    "lightgbm",
    "xgboost",
    "scipy",
    "numba",
    "dask",
    "distributed",
    "pyarrow",
}


def _modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _imports(path: Path) -> set[str]:
    """Every package that a module imports, wherever in the module."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def _ours(path: Path) -> set[str]:
    return {name for name in _imports(path) if name == "fairkit" or name.startswith("fairkit_")}


def test_core_knows_no_plugin_no_command_no_registry():
    for path in _modules("core"):
        assert _ours(path) <= {"fairkit"}, path


def test_the_registry_knows_core_only():
    for path in _modules("registry"):
        assert _ours(path) <= {"fairkit", "fairkit_registry"}, path


def test_the_command_knows_core_and_registry():
    for path in _modules("cli"):
        assert _ours(path) <= {"fairkit", "fairkit_registry", "fairkit_cli"}, path


def test_a_plugin_never_imports_another():
    for path in _modules("plugins"):
        own = path.relative_to(ROOT / "plugins").parts[0].removesuffix(".py")
        assert _ours(path) <= {"fairkit", own}, path


def test_source_roots_are_no_packages():
    for folder in ("core", "registry", "cli", "plugins"):
        assert not (ROOT / folder / "__init__.py").exists()
        for path in _modules(folder):
            assert not _imports(path) & {"core", "registry", "cli", "plugins"}, path


def test_every_plugin_file_is_an_entry_point():
    import tomllib

    entries = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"][
        "fairkit"
    ]
    declared = {target.split(":")[0].split(".")[0] for target in entries.values()}
    present = {p.stem for p in (ROOT / "plugins").iterdir() if p.name.startswith("fairkit_")}
    assert declared == present


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("import fairkit", "import fairkit"),
        ("the command's modules", "import fairkit_cli.main"),
        (
            "fairkit --help",
            "import sys; sys.argv = ['fairkit', '--help']\nfrom fairkit_cli.main import run\n"
            "try: run()\nexcept SystemExit: pass",
        ),
        ("listing plugins' names", "from fairkit.plugins import find; find()"),
    ],
)
def test_light_imports_stay_light(what, code):
    code += "\nimport sys; print('LOADED', *sorted({name.split('.')[0] for name in sys.modules}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.rpartition("LOADED")[2].split())
    assert not loaded & HEAVY, what


def test_an_audit_does_not_load_what_it_does_not_need(tmp_path, loans_model):
    code = (
        "import fairkit, sys\n"
        "roles = dict(label='decision', favorable='approved', sensitive=['sex'])\n"
        f"data = fairkit.load_data({str(loans_model.data)!r}, **roles)\n"
        f"fairkit.audit({str(loans_model.path)!r}, data)\n"
        "print('LOADED', *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    loaded = set(result.stdout.rpartition("LOADED")[2].split())
    # pyarrow loads pandas by itself where it is installed
    assert not loaded & {"sklearn", "torch", "lightgbm", "xgboost", "scipy", "numba"}
