"""The site of a registry: what it says, that it leads somewhere, and that it is shown and read by everybody."""

from __future__ import annotations

import hashlib
import html
import importlib.util
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fairkit_cli.main import app
from fairkit_cli.registry.site import build as building
from fairkit_cli.registry.site.build import build
from fairkit_registry.evidence import certificate, issuing, signers
from fairkit_registry.policies import AliasPolicy
from fairkit_registry.promotion.compare import compare_findings
from fairkit_registry.promotion.run import promote
from fairkit_registry.store.registry import Registry

_helpers = Path(__file__).parents[2] / "fairkit_registry" / "conftest.py"
_spec = importlib.util.spec_from_file_location("registry_helpers", _helpers)
helpers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(helpers)

EVIL = "<img src=http://site.invalid/x.png onerror=alert(1)>"
ATOM = "{http://www.w3.org/2005/Atom}"


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Four versions: two that a key vouches for, a stranger's, and one without a certificate; two aliases."""
    folder = tmp_path_factory.mktemp("site")
    signers.new_key_pair(folder / "k")
    signers.new_key_pair(folder / "stranger")
    key, stranger = (signers.load_secret(folder / name) for name in ("k", "stranger"))
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_STATE_HOME", str(folder / "state"))
    patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    with Registry(folder / "registry", create=True) as store:
        for number, (value, by) in enumerate(((0.08, key), (0.03, key), (0.01, stranger), (0.0, None)), 1):
            model = helpers.write_model(folder / "m.onnx", number)
            listed = []
            if by is not None:
                found = [
                    helpers.finding("demographic_parity_difference", value),
                    helpers.finding("accuracy_difference", 0.02),
                ]
                at = datetime(2026, 1, number, tzinfo=UTC)
                raw = issuing.issue(helpers.report(model, found), [by], settings=helpers.SETTINGS, audited_at=at)
                listed = [folder / f"c{number}.json"]
                listed[0].write_bytes(raw)
            parent = None if number == 1 else "credit@1"
            store.add("credit", model, certificates=listed, parent=parent, tags=["t"], notes=EVIL)
        policy = AliasPolicy(keys=(key.public.pem,))
        store.set_alias("credit", "production", policy)
        old = AliasPolicy(keys=(key.public.pem,), max_age_days=1)
        store.set_alias("credit", "staging", old)
        assert promote(store, "credit@2", "production").verdict == "pass"
        then = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=3)
        assert promote(store, "credit@1", "staging", now=then).verdict == "pass"
        build(store, folder / "public", title="Models of the house", url="https://example.org/m/")
    yield SimpleNamespace(folder=folder, public=folder / "public", registry=folder / "registry")
    patch.undo()


def text(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", page.read_text("utf-8")))


def test_every_link_leads_somewhere_and_nothing_comes_from_elsewhere(made):
    pages = list(made.public.rglob("*.html"))
    assert len(pages) == 8
    assert made.public / "verify.html" in pages
    for page in pages:
        for target in re.findall(r'(?:href|src)="([^"]+)"', page.read_text("utf-8")):
            assert "://" not in target
            assert (page.parent / target).exists(), f"{page} links to {target}"


def test_the_pages_say_what_holds_and_what_does_not(made):
    model = " ".join(text(made.public / "m/credit/index.html").split())
    assert "version 2 still meets what the alias asks for" in model
    assert "version 1 does not meet what the alias asks for any more" in model
    assert "the certificate is too old" in model
    assert "at most 1 days old" in model  # what it asks for
    two, three, four = (" ".join(text(made.public / f"m/credit/{n}.html").split()) for n in (2, 3, 4))
    assert "which an alias of the model trusts" in two
    assert "Made of: credit@1" in two
    assert "DOES NOT HOLD".lower() in three.lower()
    assert "These numbers are a claim: no trusted key vouches for them" in three
    assert "nobody vouches for it" in four
    index = " ".join(text(made.public / "index.html").split())
    assert "production → version 2 ✓ Pass" in index
    assert "staging → version 1 ✗ Fail" in index
    assert "credit@production points to version 2" in index
    assert "not pinned by the alias" in index  # a reason of the promotion, as the log keeps it


def test_a_strangers_numbers_are_in_no_chart(made):
    page = (made.public / "m/credit/index.html").read_text("utf-8")
    tips = re.findall(r'data-tip="version (\d)', page)
    assert set(tips) == {"1", "2"}
    assert page.count("<svg") == 2 * page.count("<figure")
    assert page.count("The numbers</summary>") == page.count("<figure")  # a table under each chart


def test_the_certificates_of_a_site_are_those_of_the_registry(made):
    for path in (made.public / "certificates").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.stem
    found = run("verify", next((made.public / "certificates").iterdir()), "--key", made.folder / "k.pub")
    assert found.exit_code in (0, 1)


def test_the_feed_is_one(made):
    feed = ET.parse(made.public / "feed.xml").getroot()
    entries = feed.findall(f"{ATOM}entry")
    assert len(entries) == 8
    assert entries[0].find(f"{ATOM}title").text == "credit@staging points to version 1"
    assert entries[0].find(f"{ATOM}link").get("href") == "https://example.org/m/m/credit/1.html"
    assert len({one.find(f"{ATOM}id").text for one in entries}) == 8
    for one in (feed, *entries):
        datetime.fromisoformat(one.find(f"{ATOM}updated").text)


def test_the_same_registry_gives_the_same_site_from_memory(made):
    before = {path: path.read_bytes() for path in made.public.rglob("*") if path.is_file()}
    with Registry(made.registry) as store:
        build(store, made.public, title="Models of the house", url="https://example.org/m/")
    assert {path: path.read_bytes() for path in made.public.rglob("*") if path.is_file()} == before


def test_a_damaged_certificate_is_shown_though_it_held_before(made, tmp_path):
    with Registry(made.registry) as store:
        digest = store.version("credit@2").certificates[0]
        path = store.blobs.path(digest)
        whole = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(whole.replace(b"A", b"B", 1))
        try:
            build(store, tmp_path / "public", title="x")
        finally:
            path.write_bytes(whole)
    page = " ".join(text(tmp_path / "public/m/credit/2.html").split())
    assert "does not hold" in page.lower()
    assert not (tmp_path / "public" / "certificates" / f"{digest}.json").exists()


def test_a_folder_with_other_things_stays_as_it_is(made, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for wrong in (("--output", tmp_path / "mine"), ("--output", tmp_path / "no" / "where")):
        assert run("registry", "site", *wrong, "--registry", made.registry).exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    public = tmp_path / "public"
    for wrong in (("--url", "example.org"),):
        refused = run("registry", "site", "--output", public, *wrong, "--registry", made.registry)
        assert refused.exit_code == 2
        assert not public.exists()
    assert run("registry", "site", "--output", public, "--registry", made.registry).exit_code == 0
    before = (public / "index.html").read_bytes()

    def full(*_: Any, **__: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(building, "version_page", full)
    refused = run("registry", "site", "--output", public, "--registry", made.registry, "--title", "new")
    assert refused.exit_code == 2
    assert "No space left" in refused.stderr
    assert (public / "index.html").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "public"]


@pytest.mark.parametrize("output", [".", "link", "../here/../here"])
def test_the_folder_may_be_named_in_any_way(made, tmp_path, monkeypatch, output):
    here, real = tmp_path / "here", tmp_path / "real"
    here.mkdir()
    real.mkdir()
    if output == "link":
        (here / "link").symlink_to(real)
    monkeypatch.chdir(here)
    for _ in range(2):
        assert run("registry", "site", "--output", output, "--registry", made.registry).exit_code == 0
        monkeypatch.chdir(here)  # the folder at this place is a new one
    assert ((real if output == "link" else here) / "index.html").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "real"]
    assert output != "link" or [path.name for path in here.iterdir()] == ["link"]


def test_many_versions_are_on_pages_of_their_own(tmp_path, monkeypatch):
    from fairkit_cli.registry.site import pages

    monkeypatch.setattr(pages, "SHOWN", 3)
    monkeypatch.setattr(pages, "LISTED", 4)
    monkeypatch.setattr(building, "SHOWN", 3)
    monkeypatch.setattr(building, "LISTED", 4)
    with Registry(tmp_path / "r", create=True) as store:
        for number in range(9):
            store.add("big", helpers.write_model(tmp_path / "m.onnx", number))
        build(store, tmp_path / "public", title="x")
    folder = tmp_path / "public" / "m" / "big"
    assert sorted(path.name for path in folder.glob("versions-*")) == [f"versions-{n}.html" for n in range(3)]
    assert 'href="9.html"' in (folder / "versions-0.html").read_text("utf-8")
    assert 'href="1.html"' in (folder / "versions-2.html").read_text("utf-8")
    with Registry(tmp_path / "empty", create=True) as store:
        build(store, tmp_path / "none", title="x")
    assert "no model yet" in (tmp_path / "none" / "index.html").read_text("utf-8")


def placed(made: SimpleNamespace, tmp_path: Path, name: str) -> str:
    """A page of the site as one beside the site's style and script."""
    for shared in ("site.css", "site.js"):
        (tmp_path / shared).write_bytes((made.public / shared).read_bytes())
    return (made.public / name).read_text("utf-8").replace('"../../', '"')


@pytest.mark.long
@pytest.mark.parametrize("name", ["index", "m/credit/index", "m/credit/2", "m/credit/compare"])
def test_axe_finds_no_fault_and_nothing_is_asked_for(
    name: str, made, tmp_path, browse: Callable[..., Any], faults: Callable[..., list[str]]
):
    page = placed(made, tmp_path, f"{name}.html")
    assert faults(page) == []
    seen = browse(page)
    assert seen.requests == []
    assert seen.console == []
    assert "<img" not in seen.dom


@pytest.mark.long
def test_two_versions_side_by_side_are_those_of_a_comparison(made, tmp_path, browse: Callable[..., Any]):
    """The script's numbers against `fairkit registry diff`'s."""
    page = placed(made, tmp_path, "m/credit/compare.html")
    page = re.sub(r'(id="before"[^>]*value=")\d+', r"\g<1>1", page)
    page = re.sub(r'(id="after"[^>]*value=")\d+', r"\g<1>2", page)
    dom = browse(page).dom
    rows = [
        [html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", dom.partition('id="sides"')[2])
    ][1:]
    with Registry(made.registry) as store:
        one, two = (
            certificate.read(store.certificate(store.version(f"credit@{n}").certificates[0])).report for n in (1, 2)
        )
    expected = {f"{pair.metric} · {pair.sensitive}": pair for pair in compare_findings(one, two)}
    assert {row[0] for row in rows} == set(expected)
    words = {"within noise": "not significant"}
    for title, _, _, difference, change in rows:
        pair = expected[title]
        low, high = pair.interval
        assert difference == f"{pair.difference:.3f} [{low:.3f}, {high:.3f}]"
        assert change == words.get(pair.change, pair.change)


def test_a_name_cannot_end_the_data_of_a_page():
    from fairkit_cli.verifier.bundle import script_json

    assert "<" not in script_json({"x": "</script><script>alert(1)"})
    assert json.loads(script_json({"x": "</script>"})) == {"x": "</script>"}


def test_copies_of_a_certificate_are_one(tmp_path, monkeypatch):
    """Another key id, a signature twice: the statement is the same, and so is the certificate."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    signers.new_key_pair(tmp_path / "k")
    key = signers.load_secret(tmp_path / "k")
    with Registry(tmp_path / "registry", create=True) as store:
        model = helpers.write_model(tmp_path / "m.onnx", 1)
        report = helpers.report(model, [helpers.finding("demographic_parity_difference", 0.08)])
        raw = issuing.issue(report, [key], settings=helpers.SETTINGS, audited_at=datetime(2026, 1, 1, tzinfo=UTC))
        record = json.loads(raw)
        copies = [record | {"signatures": [one | {"keyid": word} for one in record["signatures"]]} for word in "ab"]
        files = [tmp_path / f"{place}.json" for place in range(3)]
        for path, content in zip(files, [record, *copies], strict=True):
            path.write_text(json.dumps(content))
        store.add("credit", model, certificates=files)
        store.set_alias("credit", "production", AliasPolicy(keys=(key.public.pem,)))
        build(store, tmp_path / "public", title="House")
    page = (tmp_path / "public" / "m" / "credit" / "1.html").read_text("utf-8")
    assert len(re.findall("<h2>Certificate(?!s)", page)) == 1
    assert "The same statement is attached in other files, too" in page
    assert len(set(re.findall(r"certificates/([0-9a-f]{64})\.json", page))) == 3
