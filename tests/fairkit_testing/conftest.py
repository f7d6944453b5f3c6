"""Fresh environments: nothing is downloaded, what is installed here can be used there."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

THIRD_PARTY = Path(__file__).resolve().parents[1] / "thirdparty_plugin"


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own, which sees the libraries of this one."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / ("Scripts" if os.name == "nt" else "bin") / "python"

    def install(self, *projects: Path) -> None:
        """Install projects as a person would, but for the download of what they need."""
        options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "install", *options, *map(str, projects)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr

    def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run Python in the environment."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "FAIRKIT"))}
        return subprocess.run(
            [str(self.python), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            env=environment | {"OMP_WAIT_POLICY": "passive"},
        )

    def fairkit(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run the command `fairkit` in the environment."""
        return self.run("-c", "from fairkit_cli.main import run; run()", *map(str, arguments), cwd=cwd)


def make_environment(folder: Path) -> Environment:
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    made = Environment(folder)
    names = {"base": str(folder), "platbase": str(folder), "installed_base": sys.base_prefix}
    site = Path(sysconfig.get_path("purelib", vars=names))
    here = sysconfig.get_path("purelib")
    # addsitedir, not a bare path: editable installs are .pth files of their own
    (site / "libraries.pth").write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
    return made


@pytest.fixture(scope="session")
def thirdparty(tmp_path_factory) -> Environment:
    """An environment with the sample plugin."""
    made = make_environment(tmp_path_factory.mktemp("thirdparty") / "venv")
    made.install(THIRD_PARTY / "good")
    return made


@pytest.fixture(scope="session")
def broken(tmp_path_factory) -> Environment:
    """An environment with the sample plugin and all its broken cousins."""
    made = make_environment(tmp_path_factory.mktemp("broken") / "venv")
    made.install(THIRD_PARTY / "good", *sorted((THIRD_PARTY / "broken").iterdir()))
    return made


@pytest.fixture(scope="session")
def fresh(tmp_path_factory):
    """Make one more environment."""
    return lambda: make_environment(tmp_path_factory.mktemp("fresh") / "venv")


@pytest.fixture(scope="session")
def loans(tmp_path_factory) -> tuple[Path, Path]:
    """A model and the data to audit it on."""
    import pyarrow.parquet as pq

    from fairkit_datasets.loans import loans_table
    from fairkit_onnx.write.encode import Encoder, NumberColumn
    from fairkit_onnx.write.estimators import add_linear, add_link
    from fairkit_onnx.write.graph import GraphBuilder

    folder = tmp_path_factory.mktemp("loans")
    pq.write_table(loans_table(1_500, 3), folder / "loans.parquet")
    graph = GraphBuilder()
    columns = (NumberColumn("income", 30_000, 1e-4, 30_000), NumberColumn("debt_ratio", 0.35, 1.0, 0.35))
    margin = add_linear(graph, Encoder(columns).add_to(graph), [[0.8, -2.0]], [0.0])
    graph.output("score", add_link(graph, margin, "binary"))
    (folder / "model.onnx").write_bytes(graph.build().SerializeToString())
    return folder / "model.onnx", folder / "loans.parquet"
