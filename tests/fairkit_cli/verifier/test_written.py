"""Where the page comes from: a command, and every site; and where pages point to it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from fairkit_cli.html.page import linked_page, page
from fairkit_cli.main import app
from fairkit_cli.verifier import bundle


def _run(*arguments):
    return CliRunner().invoke(app, ["verify", *map(str, arguments)])


def test_the_command_writes_the_page(tmp_path):
    outcome = _run("--page", tmp_path / "verify.html")
    assert outcome.exit_code == 0, outcome.output
    assert (tmp_path / "verify.html").read_text("utf-8") == bundle.page()
    assert "default-src 'none'; script-src 'sha256-" in bundle.page()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["c.json", "--page", "x.html"], "leave the certificate and other options out"),
        (["--page", "x.html", "--recompute"], "leave the certificate and other options out"),
        (["--page", "/nowhere/x.html"], "does not exist"),
        ([], "Missing argument CERT"),
        (["c.json"], "Missing option --key"),
    ],
)
def test_bad_input_is_one_message(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = _run(*arguments)
    assert outcome.exit_code == 2
    assert message in outcome.stderr
    assert list(tmp_path.iterdir()) == []


def test_pages_say_how_evidence_is_checked():
    assert "fairkit verify --page verify.html" in page("A page", "text")
    assert '<a href="../../verify.html">Check a certificate yourself</a>' in linked_page(
        "A page", "text", root="../../"
    )
