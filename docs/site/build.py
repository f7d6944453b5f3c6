"""Build the documentation site: ``make site``. It needs no network, and a warning is an error.

The Markdown pages stay as they are in the repository. Here they are put beside what a site needs besides: a first page, a table of
contents for each section of `docs/index.md`, the reference from docstrings, the gallery and the notebooks, which are run.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
SITE = DOCS / "site"

SECTIONS = {
    "Learn": ("tutorials", "Tutorials"),
    "Do": ("how-to", "How-to"),
    "Understand": ("explanation", "Explanation"),
    "Look up": ("reference", "Reference"),
}
"""The sections of `docs/index.md`, their folders here, and what the head of a page calls them."""

API = {
    "audit": (
        "Measure",
        [
            "advise",
            "audit",
            "compare",
            "parity",
            "alternatives",
            "plan",
            "scorer",
            "Watch",
            "load_data",
            "Dataset",
            "Drawn",
            "PredictedColumns",
        ],
    ),
    "results": (
        "Results",
        [
            "Advice",
            "Alternatives",
            "Law",
            "Parity",
            "Report",
            "Finding",
            "GroupValue",
            "MitigationResult",
            "Plan",
            "Rule",
        ],
    ),
    "repair": ("Repair", ["mitigate", "repair", "frontier", "Sweep", "Choice", "mitigator", "to_onnx"]),
    "models": ("Models", ["OnnxModel", "ModelOptions", "AuditSettings", "FairMetric"]),
    "extend": (
        "For authors of plugins",
        [
            "Metric",
            "Rate",
            "Mean",
            "Rows",
            "Auditor",
            "AuditContext",
            "Mitigator",
            "Promotion",
            "PromotionCheck",
            "Remark",
            "hookimpl",
            "parameter",
        ],
    ),
    "errors": (
        "Errors",
        ["FairkitError", "ConfigError", "DataError", "ModelError", "ParameterError", "PluginError", "PolicyError"],
    ),
}
"""The pages of the reference from docstrings; a test holds that every public name is on one."""
MORE = {
    "results": [
        "fairkit.results.policy.Comparison",
        "fairkit.results.policy.Change",
        "fairkit_repair.frontiers.state.Frontier",
    ],
    "registry": [
        f"fairkit_registry.{name}"
        for name in ("certify", "verify", "new_key_pair", "Certificate", "Registry", "AliasPolicy")
    ],
}


def stage(source: Path) -> None:
    """Put all sources of the site into a new folder."""
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("site", "*.py", "__pycache__"))
    shutil.copytree(
        DOCS / "examples", source / "examples", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    (source / "index.md").rename(source / "contents.md")
    for name in ("conf.py", "pictures.py"):
        shutil.copy(SITE / name, source / name)
    shutil.copy(SITE / "first_page.myst", source / "index.md")
    (source / "_static").mkdir()
    shutil.copy(SITE / "site.css", source / "_static")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, source / name.lower())
    contents = (source / "contents.md").read_text("utf-8")
    (source / "contents.md").write_text(contents.replace("# Documentation\n", "# All pages\n", 1), encoding="utf-8")
    for heading, (folder, title) in SECTIONS.items():
        _section(source, contents, heading, folder, title)
    plugins = source / "plugins" / "index.md"
    others = sorted(page.stem for page in plugins.parent.glob("*.md") if page.stem != "index")
    plugins.write_text(plugins.read_text("utf-8") + _toctree(others, hidden=True), encoding="utf-8")
    _api(source)
    for notebook in source.rglob("*.ipynb"):
        _offline(notebook)
    for page in source.rglob("*.md"):
        _inside(page, source)


def _section(source: Path, contents: str, heading: str, folder: str, title: str) -> None:
    """Write a section's first page: its part of the index, and its table of contents."""
    part = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", contents, re.DOTALL | re.MULTILINE)
    if part is None:
        raise SystemExit(f"docs/index.md has no section {heading!r}")
    text = re.sub(r"\]\(([^):]+)\)", lambda found: f"](../{found[1]})", part[1].strip())
    pages = re.findall(rf"\]\({folder}/([^)#]+)\.(?:md|ipynb)", part[1])
    more = ["api"] if folder == "reference" else []
    text += "\n\n- [Python, from the docstrings](api.md): every public function and class." if more else ""
    written = f"# {title}\n\n{text}\n{_toctree([*pages, *more], hidden=True)}"
    (source / folder / "index.md").write_text(written, encoding="utf-8")


def _toctree(pages: list[str], *, hidden: bool) -> str:
    lines = [":hidden:"] if hidden else []
    return "\n```{toctree}\n" + "\n".join([*lines, "", *pages]) + "\n```\n"


def _api(source: Path) -> None:
    """Write the reference from docstrings."""
    folder = source / "reference" / "api"
    folder.mkdir()
    pages = {name: (title, [f"fairkit.{one}" for one in names]) for name, (title, names) in API.items()}
    pages["registry"] = ("Certificates and the registry", [])
    for name, (title, names) in pages.items():
        written = [title, "=" * len(title), ""]
        for path in [*names, *MORE.get(name, [])]:
            written += [f".. auto{_kind(path)}:: {path}", ""]
        (folder / f"{name}.rst").write_text("\n".join(written), encoding="utf-8")
    head = "# Python, from the docstrings\n\n`help(fairkit)` prints a page like this, and `help(fairkit.audit)` each entry.\n"
    listed = _toctree([f"api/{name}" for name in pages], hidden=False)
    (source / "reference" / "api.md").write_text(head + listed, encoding="utf-8")


def _kind(path: str) -> str:
    import importlib
    import inspect

    module, _, name = path.rpartition(".")
    thing = getattr(importlib.import_module(module), name)
    if not inspect.isclass(thing):
        return "function" if inspect.isfunction(thing) else "data"
    return "exception" if issubclass(thing, BaseException) else "class"


def _offline(notebook: Path) -> None:
    """Let a notebook's charts be pictures: as they are, they ask the network for what draws them."""
    content = json.loads(notebook.read_text("utf-8"))
    first = {
        "cell_type": "code",
        "id": "pictures",
        "metadata": {"tags": ["remove-cell"]},
        "execution_count": None,
        "outputs": [],
        "source": "import altair\n\naltair.renderers.enable('svg')",
    }
    content["cells"].insert(1, first)
    notebook.write_text(json.dumps(content), encoding="utf-8")


def _inside(page: Path, source: Path) -> None:
    """Let links to files that are no pages of the site be what they are called."""
    text = page.read_text("utf-8")

    def shown(found: re.Match[str]) -> str:
        target = found[2].partition("#")[0]
        if "://" in target or not target:
            return found[0]
        aimed = (page.parent / target).resolve()
        moved = {source / "index.md": "contents.md", source / "README.md": "index.md"}
        name = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}.get(aimed.name)
        if name is not None:
            return f"[{found[1]}]({'../' * (len(page.relative_to(source).parts) - 1)}{name})"
        if aimed in moved and page.name != "contents.md":
            return f"[{found[1]}]({found[2].replace(aimed.name, moved[aimed])})"
        return found[0] if aimed.exists() and aimed.is_relative_to(source) else f"`{found[1].strip('`')}`"

    page.write_text(re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", shown, text), encoding="utf-8")


def build(target: Path) -> Path:
    """Build the site into a folder; return its first page.

    Raises
    ------
    CalledProcessError
        Sphinx failed, or warned.
    """
    source = target / "source"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    stage(source)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q"]
    subprocess.run([*command, str(source), str(target / "html")], check=True)
    return target / "html" / "index.html"


if __name__ == "__main__":
    begun = time.perf_counter()
    page = build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site")
    sys.stdout.write(f"{page}, in {time.perf_counter() - begun:.0f} s\n")
