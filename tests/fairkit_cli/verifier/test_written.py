"""Where the page comes from: a command, and every site; and where pages point to it."""

from __future__ import annotations

import base64
import gzip
import re
import time
from pathlib import Path

import pytest
from tests.commands import invoke

from fairkit_cli.formats import html as one_certificate
from fairkit_cli.render.svg import page
from fairkit_cli.verifier import bundle
from fairkit_registry.evidence import certificate
from fairkit_registry.evidence.signers import load_public

GOLDEN = Path(__file__).parents[2] / "fairkit_registry" / "golden"


def _run(*arguments):
    return invoke("verify", *arguments)


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


@pytest.mark.long
def test_pages_of_certificates_hold_the_page():
    written = page("A page", "text", verifier=True)
    (content,) = re.findall(r'href="data:text/html;base64,([^"]+)" download="verify.html"', written)
    assert base64.b64decode(content).decode() == bundle.page()
    raw = gzip.decompress((GOLDEN / "certificate.json.gz").read_bytes())
    shown = one_certificate(certificate.verify(raw, [load_public(GOLDEN / "key.pub")]))
    assert content in shown


@pytest.mark.long
def test_it_is_saved_by_a_click(browser, tmp_path):
    (tmp_path / "audit.html").write_text(page("A page", "text", verifier=True), "utf-8")
    (tmp_path / "saved").mkdir()
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "saved"))
    browser.open(tmp_path / "audit.html")
    browser.run("document.querySelector('footer a').click()")
    browser.wait("true")
    for _ in range(200):
        if (tmp_path / "saved" / "verify.html").is_file():
            break
        time.sleep(0.05)
    assert (tmp_path / "saved" / "verify.html").read_text("utf-8") == bundle.page()
    assert [one for one in browser.complaints() if "Content Security" in one] == []
