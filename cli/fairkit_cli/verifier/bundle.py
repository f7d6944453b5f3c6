"""The verifying page: its modules, tables and style in one file, which may not open a connection."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Any

MODULES = ("json", "digest", "envelope", "form", "policy", "check", "view")
"""In the order in which they need each other."""

WHAT_IF = ("arithmetic", "policy", "whatif")
"""What the panel of an audit's page needs."""

_IMPORT = re.compile(r'^import (\{[^}]*\}|\* as \w+) from "\./(\w+)\.mjs";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
_START = 'moduleView.start(document.querySelector("main"), JSON.parse(document.getElementById("tables").textContent));'


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _variable(name: str) -> str:
    return f"module{name.capitalize()}"


def _imported(match: re.Match[str]) -> str:
    names, module = match.groups()
    return f"const {names.removeprefix('* as ')} = {_variable(module)};"


def module(name: str) -> str:
    """Return one module as a value: its exports; what it imports is taken from the values of others."""
    text = _text(f"{name}.mjs")
    exported = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub("", _IMPORT.sub(_imported, text))
    return f"// {name}.mjs\nconst {_variable(name)} = (() => {{\n{body}return {{ {exported} }};\n}})();\n"


def script(names: tuple[str, ...], ending: str = "") -> str:
    """Return modules as one script."""
    return '"use strict";\n' + "".join(map(module, names)) + ending


def what_if() -> str:
    """Return the script of the panels that move thresholds on an audit's page."""
    return script(WHAT_IF, "moduleWhatif.start(document);\n")


def tables() -> dict[str, Any]:
    """Return the page's tables: the schemas of statements, and what the installed auditors declare."""
    from fairkit.results.report import report_schema
    from fairkit_registry.evidence import charts as consistency
    from fairkit_registry.evidence import predicate

    declared = {name: sorted(metrics) for name, metrics in sorted(consistency.declarations().items())}
    return {"schemas": [predicate.schema(), report_schema()], "declared": declared}


def script_json(value: Any) -> str:
    """Return JSON that can stand in a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def script_digest(text: str) -> str:
    """Return a script, or a style, as a page's policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def page() -> str:
    """Return the whole page, `verify.html`."""
    code, style, facts = script(MODULES, _START), _text("page.css"), script_json(tables())
    policy = (
        f"default-src 'none'; script-src {script_digest(code)}; style-src {script_digest(style)}; connect-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>Check a fairness certificate</title>\n<style>{style}</style></head>\n"
        "<body><main><h1>Check a fairness certificate</h1><noscript><p>This page needs JavaScript: it computes "
        "everything here, on this computer.</p></noscript></main>\n"
        f'<script type="application/json" id="tables">{facts}</script>\n<script>{code}</script></body></html>\n'
    )
