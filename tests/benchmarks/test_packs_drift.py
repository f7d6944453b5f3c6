"""The sources of packs against a server of the test: the same, changed, and what cannot be verified."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.commands import checked

from fairkit_cli.commands.report import clauses

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from packs_drift import drift_of, fetched, main, normalised

PAGE = (
    "<html><script>less than nothing</script>"
    "<p>A rate of <b>less&nbsp;than</b>\n four\u2013fifths \u201cof\u201d it.</p>"
)
SPOKEN = 'a rate of less than four-fifths "of" it.'
PAGES: dict[str, tuple[int, str, bytes]] = {
    "/law": (200, "text/html; charset=utf-8", PAGE.encode()),
    "/gone": (404, "text/html", b"gone"),
    "/file": (200, "application/pdf", b"%PDF"),
    "/odd": (200, "text/plain; charset=klingon", b"x"),
    "/plain": (200, "text/plain", b"<b>less than"),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        code, kind, body = PAGES[self.path]
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def plugin(folder: Path, items: str, name: str) -> Path:
    """A plugin file with one pack."""
    head = 'title = "T"\nlaw = "L"\nsource = "https://example.org"\nchecked = 2026-01-01\nnotice = "No legal advice."\n'
    path = folder / f"{name.replace('-', '_')}.py"
    path.write_text(
        f"from fairkit.packs import Pack\nimport fairkit\nTEXT = {head + items!r}\n"
        f"class Mine(Pack):\n    name = {name!r}\n    @classmethod\n    def text(cls):\n        return TEXT\n"
        "@fairkit.hookimpl\ndef fairkit_packs():\n    return [Mine]\n"
    )
    return path


def item(clause: str, address: str, quote: str | None, digest: str | None = None) -> str:
    more = "" if quote is None else f"quote = '{quote}'\n"
    more += "" if digest is None else f'text_sha256 = "{digest}"\n'
    source = f'sources = [{{ citation = "c", address = "{address}" }}]\n'
    return f'[[items]]\nclause = "{clause}"\ntitle = "t"\nmark = "O"\n{source}{more}'


def test_the_words_are_compared_and_then_the_digest(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    digest = hashlib.sha256(SPOKEN.encode()).hexdigest()
    items = [
        item("words", f"{server}/law", 'less than four-fifths "of" it'),
        item("digest", f"{server}/law", "less than", digest),
        item("other digest", f"{server}/law", "less than", "0" * 64),
        item("other words", f"{server}/law", "less than three-fifths"),
        item("script", f"{server}/law", "less than nothing"),
        item("gone", f"{server}/gone", "less"),
        item("file", f"{server}/file", "less"),
        item("charset", f"{server}/odd", "less"),
        item("no words", f"{server}/law", None),
        item("nobody", "http://127.0.0.1:9/x", "less"),
        item("scheme", "file:///etc/passwd", "root"),
        item("plain", f"{server}/plain", "<b>less"),
    ]
    monkeypatch.setenv("FAIRKIT_PLUGINS", str(plugin(tmp_path, "".join(items), "drifting")))
    assert main(["drifting"]) == 1
    found = {row["clause"]: drift_of(row, fetched) for row in clauses(["drifting"], "2026-11-24")}
    expected = {
        "words": "same", "digest": "same", "plain": "same", "other digest": "changed", "other words": "changed",
        "script": "changed",
    }  # fmt: skip
    assert {clause: one.result for clause, one in found.items()} == {
        clause: expected.get(clause, "could not verify") for clause in found
    }
    assert found["words"].sha256 == digest
    assert "404" in found["gone"].reason
    assert "no web address" in found["scheme"].reason
    assert "around them" in found["other digest"].reason


@pytest.mark.parametrize(("path", "code"), [("law", 0), ("file", 3)])
def test_what_could_not_be_verified_is_no_success(
    path: str,
    code: int,
    server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    made = plugin(tmp_path, item("1", f"{server}/{path}", "less than"), f"drift-{path}")
    monkeypatch.setenv("FAIRKIT_PLUGINS", str(made))
    assert main([f"drift-{path}"]) == code
    assert ("could not verify" if code else "same") in capsys.readouterr().out


def test_text_is_compared_without_its_dress(server: str):
    assert normalised(fetched(f"{server}/law")) == SPOKEN
    assert normalised("Soft\u00adware  \u201cIs\u201d it\u2019s \u2014 so") == 'software "is" it\'s - so'


def test_the_status_of_every_clause_and_the_check_of_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795478400")  # 2026-11-24
    done = checked("packs", "status", "--strict", "--format", "json")
    rows = json.loads(done.stdout)
    assert [one["recheck_by"] for one in rows] == sorted(one["recheck_by"] for one in rows)
    said = {(one["pack"], one["clause"]): one for one in rows}
    assert said["ecoa", "12 CFR 1002.6(a), comment 2 (ended)"]["today"] == "repealed 2026-07-21"
    assert said["eu-ai-act", "Annex IV 4"]["today"] == "not yet applicable, applies from 2027-12-02"
    assert not any(one["overdue"] or one["lacks"] for one in rows)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1798070400")  # 2026-12-24, a day after the thirty days
    late = checked("packs", "status", "ecoa", "--strict", code=3)
    assert "OVERDUE" in late.stdout
    assert "may change  ecoa: suit for vacatur" in late.stdout
    checked("packs", "status", "ecoa")
    checked("packs", "status", "nyc-ll144", "ecoa@2026-07-20", "--strict")
    monkeypatch.setenv("FAIRKIT_PLUGINS", str(plugin(tmp_path, '[[items]]\nclause = "1"\ntitle = "t"\n', "bare")))
    bare = checked("packs", "status", "bare", "--strict", code=3)
    assert "LACKS status  LACKS source  LACKS mark" in bare.stdout
    checked("packs", "status", "nobody", code=2)
