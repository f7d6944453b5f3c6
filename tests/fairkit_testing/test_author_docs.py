"""The pages for authors hold: every block runs, every hook and interface is there and tested, names are public."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import fairkit
from fairkit import hookspecs, plugins
from fairkit.auditors import Auditor
from fairkit.charts import EvidenceChart
from fairkit.exporters import Exporter
from fairkit.learners import Learner
from fairkit.metrics import Mean, Metric, Rate
from fairkit.mitigators import FittedModel, Mitigator
from fairkit.models.scorer import ModelSource
from fairkit.packs import Pack
from fairkit.promotions import PromotionCheck
from fairkit.signers import Signer
from fairkit.sources import DataSource
from fairkit.statistics import Statistic
from fairkit_repair.postprocess import PostProcessor
from fairkit_testing import auditor_checks, metric_checks, mitigator_checks, plugin_checks, run_checks

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "plugins"
BLOCK = re.compile(r"```(sh|python)(?: file=(\S+))?(?: exit=(\d+))?\n(.*?)```", re.DOTALL)
HOOKS = {
    "fairkit_metrics": "metrics",
    "fairkit_auditors": "auditors",
    "fairkit_mitigators": "mitigators",
    "fairkit_learners": "learners",
    "fairkit_evidence_charts": "evidence_charts",
    "fairkit_sources": "sources",
    "fairkit_model_sources": "model_sources",
    "fairkit_promotion_checks": "promotion_checks",
    "fairkit_signers": "signers",
    "fairkit_exporters": "exporters",
    "fairkit_packs": "packs",
}
"""Every hook, and where a loaded plugin has what it gave."""

INTERFACES = (
    Metric,
    Mean,
    Rate,
    Statistic,
    Auditor,
    Mitigator,
    PostProcessor,
    FittedModel,
    Learner,
    EvidenceChart,
    DataSource,
    ModelSource,
    PromotionCheck,
    Signer,
    Exporter,
    Pack,
)


def text_of(page: str) -> str:
    return (PAGES / page).read_text("utf-8")


def plugin_files(page: str) -> dict[str, str]:
    """The last block of each file name on a page: a later one takes the place of an earlier."""
    return {file: code for _, file, _, code in BLOCK.findall(text_of(page)) if file.count("/") == 0 and file}


EXAMPLES = {
    file: code for page in ("one-off.md", "hooks.md", "methods.md") for file, code in plugin_files(page).items()
}


def load_file(text: str, file: str, folder: Path, monkeypatch) -> plugins.Plugin:
    (folder / file).write_text(text, encoding="utf-8")
    monkeypatch.setenv(plugins.FILES, str(folder / file))
    return plugins.load(Path(file).stem.replace("_", "-"))


@pytest.mark.long
@pytest.mark.parametrize("file", EXAMPLES)
def test_each_example_passes_the_contract_checks(file, tmp_path, monkeypatch):
    plugin = load_file(EXAMPLES[file], file, tmp_path, monkeypatch)
    outcomes = list(run_checks(plugin))
    assert [outcome for outcome in outcomes if outcome.status != "passed"] == []
    assert len(outcomes) > 3


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_is_documented_with_an_example_that_uses_it(hook, tmp_path, monkeypatch):
    text = text_of("hooks.md")
    assert f"\n## {hook}\n" in text
    section = text.split(f"\n## {hook}\n")[1].split("\n## ")[0]
    found = [(file, code) for _, file, _, code in BLOCK.findall(section) if f"def {hook}():" in code]
    assert found
    plugin = load_file(found[0][1], found[0][0], tmp_path, monkeypatch)
    assert getattr(plugin, HOOKS[hook])
    assert hook in text_of("index.md")


def test_there_is_no_other_hook():
    specs = {name for name in vars(hookspecs) if name.startswith("fairkit_")}
    assert specs == set(HOOKS)


@pytest.mark.parametrize("interface", INTERFACES)
def test_each_interface_is_documented_with_what_it_has(interface):
    pages = text_of("hooks.md") + text_of("methods.md")
    assert interface.__name__ in pages
    assert inspect.getdoc(interface)
    own = {
        name
        for base in interface.__mro__
        if base.__module__.startswith("fairkit.")
        for name in (*vars(base), *inspect.get_annotations(base))
        if not name.startswith("_")
    }
    missing = sorted(
        name for name in own if not re.search(rf"[`.]{name}\b|\bdef {name}\b|\bclass {name}\b|\n    {name} = ", pages)
    )
    assert missing == []


@pytest.mark.long
@pytest.mark.parametrize(
    "interface", [Metric, Auditor, Mitigator, Learner, EvidenceChart, DataSource, PromotionCheck, Signer]
)
def test_the_docstring_of_an_interface_opens_with_a_whole_plugin(interface, tmp_path, monkeypatch):
    doc = inspect.getdoc(interface)
    example = textwrap.dedent(re.search(r"::\n\n((?:    .*\n|\n)+)", doc).group(1))
    assert doc.index("::") < 700
    name = re.search(r'name = "([^"]+)"', example).group(1)
    plugin = load_file(example, f"{name.replace('-', '_')}.py", tmp_path, monkeypatch)
    wrong = [outcome for outcome in run_checks(plugin) if outcome.status == "failed"]
    # a docstring's example has no module docstring of its own
    assert [outcome.check for outcome in wrong] == ["check_documented"]
    assert "its module has no docstring" in wrong[0].message


def test_every_check_is_documented():
    modules = (plugin_checks, metric_checks, auditor_checks, mitigator_checks)
    listed = [checks for module in modules for name, checks in vars(module).items() if name.endswith("_CHECKS")]
    names = {check.__name__ for checks in listed for check in checks}
    assert len(listed) == 14
    assert set(re.findall(r"^\| `(check_\w+)` \|", text_of("testing.md"), re.MULTILINE)) == names
    assert {name for module in modules for name in vars(module) if name.startswith("check_")} == names
    assert all(inspect.getdoc(check) for checks in listed for check in checks)


def run_page(page: str, folder: Path, skip: str = "") -> None:
    """Run a page's blocks in order, as a person would who types them into one terminal."""
    environment = {k: v for k, v in os.environ.items() if k != plugins.FILES}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    script = ["set -u"]
    for kind, file, code, text in BLOCK.findall(text_of(page)):
        if file:
            script += [f"mkdir -p $(dirname {file})", f"cat > {file} <<'END'\n{text}END"]
        elif kind == "python":
            script.append(f"python - <<'END' || exit 99\n{text}END")
        else:
            for line in text.replace("\\\n", " ").splitlines():
                if skip and re.search(skip, line):
                    continue
                script.append(
                    f'{line}\nstatus=$?; [ $status = {code or 0} ] || {{ echo "{page}: $status" >&2; exit 98; }}'
                )
    result = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"


@pytest.mark.long
def test_the_ten_lines_are_ten_and_run_as_typed(tmp_path, loans):
    # what `fairkit demo --keep demo` leaves there, as far as the page needs it; the demo has tests of its own
    import shutil

    import onnx

    from fairkit_onnx.write.export import embed_settings

    (tmp_path / "demo").mkdir()
    model = onnx.load(loans[0])
    embed_settings(model, {"label": "decision", "favorable": "approved", "sensitive": ["sex"], "task": "binary"})
    onnx.save(model, tmp_path / "demo" / "plain.onnx")
    shutil.copy(loans[1], tmp_path / "demo" / "test.parquet")
    first = next(code for _, file, _, code in BLOCK.findall(text_of("one-off.md")) if file)
    assert len([line for line in first.splitlines() if line.strip()]) == 10
    run_page("one-off.md", tmp_path, skip="^fairkit demo")
    report = (tmp_path / "report.json").read_text("utf-8")
    assert '"mean_margin_difference"' in report
    assert '"distribution": "file"' in report


@pytest.mark.long
def test_the_page_on_testing_runs_as_typed(tmp_path, thirdparty):
    for kind, file, _, text in BLOCK.findall(text_of("testing.md")):
        assert kind == "python"
        if file:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(text, encoding="utf-8")
            result = thirdparty.run("-m", "pytest", "-q", "-p", "no:cacheprovider", file, cwd=tmp_path)
        else:
            result = thirdparty.run("-c", text, cwd=tmp_path)
        assert result.returncode == 0, result.stdout + result.stderr
        if "run_checks" in text:
            assert "check_mitigator_promises lots passed" in result.stdout
            assert "failed" not in result.stdout


def test_the_page_on_projects_names_what_the_command_writes():
    from fairkit_cli.plugins.new import project_files

    page = text_of("project.md")
    for file in project_files("score-gap", "metric"):
        assert file.split("/")[-1] in page or file == ".gitignore"


def public_names() -> dict[str, list[str]]:
    """The names of the page, by module."""
    page = text_of("public-names.md")
    found = {"fairkit": re.findall(r"`(\w+)`", re.search(r"`import fairkit` gives (.*?)\.\n", page, re.S).group(1))}
    for module, names in re.findall(r"^\| `(fairkit[\w.]+)` \| (.*) \|$", page, re.MULTILINE):
        found[module] = re.findall(r"`(\w+)`", names)
    return found


def test_the_public_names_of_fairkit_are_these():
    assert sorted(public_names()["fairkit"]) == sorted(fairkit.__all__)
    assert all(hasattr(fairkit, name) for name in fairkit.__all__)


@pytest.mark.parametrize("module", [name for name in public_names() if name != "fairkit"])
def test_public_names_exist_and_are_documented(module):
    loaded = importlib.import_module(module)
    for name in public_names()[module]:
        value = getattr(loaded, name)
        assert not callable(value) or inspect.getdoc(value), name
        if module == "fairkit_testing":
            assert name in loaded.__all__


CORE = {"fairkit", "fairkit_onnx", "fairkit_repair", "fairkit_similarity", "fairkit_watch", "fairkit_testing"}
THIRD_PARTY_STYLE = [
    *(
        ROOT / "plugins" / f"fairkit_{name}.py"
        for name in ("correlation_remover", "disparate_impact_remover", "massaging", "project", "reweigh")
    ),
    ROOT / "tests" / "thirdparty_plugin" / "good" / "fairkit_lots.py",
    *sorted((ROOT / "cli" / "fairkit_cli" / "plugins" / "template").glob("*.py.txt")),
]


def imported_names(code: str):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in CORE:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "fairkit":
            yield "fairkit", node.attr


@pytest.mark.parametrize(
    "code",
    [
        *(pytest.param(path.read_text("utf-8").replace("$", ""), id=path.name) for path in THIRD_PARTY_STYLE),
        *(pytest.param(code, id=file) for file, code in EXAMPLES.items()),
    ],
)
def test_whoever_writes_as_a_third_party_uses_public_names_only(code):
    public = {(module, name) for module, names in public_names().items() for name in names}
    assert [pair for pair in imported_names(code) if pair not in public] == []
