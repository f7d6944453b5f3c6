"""`verify.html` in a real browser: what it says, and that it opens no connection."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
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


@pytest.fixture
def opened(browser, verify_html):
    browser.open(verify_html)
    return browser


@pytest.mark.long
def test_a_certificate_that_holds(opened, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_bytes(gzip.decompress((GOLDEN / "certificate.json.gz").read_bytes()))
    text = opened.check(certificate=path, keys=GOLDEN / "key.pub", model=GOLDEN / "model.onnx")
    assert "This certificate holds." in text
    assert "signed by the key ded81454f84c3b78" in text
    assert "It is about the model file that you gave" in text
    assert "Every rule of its policy is kept" in text
    assert "fairkit verify --recompute" in text
    assert opened.run("document.querySelectorAll('svg .limit').length") == 1
    assert opened.requests() == []
    assert opened.complaints() == []


@pytest.mark.long
def test_no_connection_can_be_opened(opened):
    """The page's own policy forbids it, whatever a script of its own would try."""
    for attempt in (
        "fetch('http://127.0.0.1:9/').then(() => 'open', () => 'refused')",
        "new Promise(done => { const i = new Image(); i.onload = () => done('open'); i.onerror = () => done('refused'); i.src = 'http://127.0.0.1:9/x.png'; })",
        "Promise.resolve(navigator.sendBeacon('http://127.0.0.1:9/', 'x') ? 'queued' : 'refused')",
        "new Promise(done => { const s = document.createElement('script'); s.onerror = () => done('refused'); s.onload = () => done('open'); s.textContent = 'window.ran = 1'; document.body.append(s); setTimeout(() => done(window.ran ? 'open' : 'refused'), 200); })",
    ):
        assert opened.run(attempt) in ("refused", "queued")
    assert opened.run("window.ran") is None
    blocked = [one for one in opened.complaints() if "Content Security Policy" in one]
    assert len(blocked) >= 4


def contradicting(statement):
    statement["predicate"]["policy"][0]["max"] = statement["predicate"]["settings"]["policy"][0]["max"] = 0.1


SAYS = {
    "sound": ({}, "This certificate holds."),
    "p256": ({"kind": "p256"}, "This certificate holds."),
    "a table": ({"name": "table-certificate"}, "No model was seen"),
    "a contradiction": ({"edit": contradicting}, "its numbers give inconclusive"),
    "expired": (
        {"edit": lambda one: one["predicate"].update(validUntil="2026-01-01T00:00:00Z")},
        "It was valid until 2026-01-01",
    ),
    "no form": ({"edit": lambda one: one["predicate"].pop("findings")}, "does not have the form"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SAYS)
def test_the_page_says_what_is_wrong(opened, resigned, name):
    given, sentence = SAYS[name]
    text = opened.check(**resigned(**given))
    assert sentence in text, text[:1500]
    assert opened.requests() == []


@pytest.mark.long
def test_without_a_key_nothing_is_claimed(opened, resigned):
    text = opened.check(**(resigned() | {"keys": []}))
    assert "Nothing was checked." in text
    assert "Without a key anybody may have written the file" in text


@pytest.mark.long
def test_fingerprint_model_and_table_are_compared(opened, resigned, signer, tmp_path):
    files = resigned()
    assert "You gave no model file" in opened.check(**files)
    other = tmp_path / "other.onnx"
    other.write_bytes(b"another model")
    assert "It is about another model than the file" in opened.check(**files, model=other)
    assert "It is about the model file that you gave" in opened.check(**files, model=GOLDEN / "model.onnx")
    assert "another table" in opened.check(**files, table="0" * 64)
    assert "64 hexadecimal digits" in opened.check(**files, table="abc")
    opened.run("document.getElementById('table').value = ''")
    assert "None of the keys that you gave has that fingerprint" in opened.check(**files, fingerprint="0" * 64)
    assert "None of the keys that you gave has signed it" in opened.check(
        certificate=files["certificate"], keys=signer.p256, fingerprint=" "
    )


@pytest.mark.long
def test_names_cannot_act(opened, resigned):
    evil = "<img src=x onerror=window.hit=1><script>window.hit=1</script>\u202egnp.exe"

    def rename(statement):
        statement["subject"][0]["name"] = evil
        statement["predicate"]["data"]["name"] = evil
        statement["predicate"]["findings"][0]["parameters"]["class"] = evil

    text = opened.check(**resigned(rename))
    opened.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert "window.hit=1</script>" in text
    assert "\u202e" not in text
    assert opened.run("window.hit") is None
    assert opened.run("document.querySelectorAll('main img, main script').length") == 0


@pytest.mark.long
def test_too_large_too_many_and_damaged_end_with_a_message(opened, resigned, tmp_path):
    huge = tmp_path / "huge.json"
    with huge.open("wb") as handle:
        handle.truncate(200 << 20)
    key = resigned(lambda statement: None)["keys"]
    assert "larger than 16 MB" in opened.check(certificate=huge, keys=key)
    many = tmp_path / "many.json"
    many.write_bytes(b'{"payload":"","payloadType":"x","signatures":[' + b'{"sig":""},' * 999_999 + b'{"sig":""}]}')
    assert "does not hold" in opened.check(certificate=many, keys=key)
    made = resigned(lambda statement: statement["predicate"].update(findings=[{}] * 100_000))
    assert "the form of a fairness certificate" in opened.check(**made)
    assert "no public key in PEM" in opened.check(**(made | {"keys": huge.with_name("made.json")}))


@pytest.mark.long
def test_many_findings_are_shown_in_part(opened, resigned):
    def multiply(statement):
        body = statement["predicate"]
        copies = [{**one, "parameters": {"class": str(copy)}} for copy in range(40) for one in body["findings"]]
        body.update(findings=copies, policy=[], verdict=None)
        body["settings"]["policy"] = []

    opened.check(**resigned(multiply))
    opened.run("document.querySelector('details').open = true")
    assert opened.run("document.querySelectorAll('details tbody tr').length") == 200
    opened.run("[...document.querySelectorAll('details button')].at(-1).click()")
    assert opened.run("document.querySelectorAll('details tbody tr').length") == 40 * 127


@pytest.mark.long
def test_a_large_model_is_read_while_it_streams(opened, resigned, tmp_path):
    model = tmp_path / "large.onnx"
    with model.open("wb") as handle:
        handle.truncate(100 << 20)
    digest = hashlib.sha256(bytes(100 << 20)).hexdigest()

    def about(statement):
        body = statement["predicate"]
        statement["subject"] = [{"name": "large.onnx", "digest": {"sha256": digest}}]
        body["model"]["sha256"] = digest

    assert "It is about the model file that you gave: large.onnx" in opened.check(**resigned(about), model=model)


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_axe_finds_no_fault(opened, resigned, axe, scheme, width):
    opened.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    opened.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
    try:
        for edit in (None, lambda statement: None, contradicting):
            if edit:
                opened.check(**resigned(edit))
                opened.run("document.querySelectorAll('details').forEach(one => one.open = true)")
            opened.run(axe + "; 0")
            told = json.loads(
                opened.run(
                    "axe.run().then(r => JSON.stringify(r.violations.map(one => [one.impact, one.id, one.nodes[0].html])))"
                )
            )
            assert told == []
        assert opened.run("document.documentElement.scrollWidth <= innerWidth")
    finally:
        opened.call("Emulation.clearDeviceMetricsOverride")
        opened.call("Emulation.setEmulatedMedia", features=[])


@pytest.mark.long
def test_keyboard_alone_is_enough(opened, resigned):
    files = resigned()
    opened.give("certificate", files["certificate"])
    opened.give("keys", files["keys"])
    seen = []
    for _ in range(6):
        opened.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        opened.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        seen.append(opened.run("document.activeElement.id || document.activeElement.type"))
    assert seen == ["certificate", "keys", "fingerprint", "model", "table", "submit"]
    opened.call(
        "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
    )
    opened.wait("document.querySelector('section h2') !== null")
    # a screen reader is taken to the result, and told its head line
    assert opened.run("document.activeElement === document.querySelector('section')")
    assert opened.run("document.querySelector('[role=status]').textContent") == "This certificate holds."


@pytest.mark.long
def test_it_prints_the_result_without_the_form(opened, resigned):
    opened.check(**resigned())
    opened.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert opened.run("getComputedStyle(document.querySelector('form')).display") == "none"
        assert "This certificate holds." in opened.text()
    finally:
        opened.call("Emulation.setEmulatedMedia", media="")


# Where the page comes from: a command, and every site; and where pages point to it.
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
