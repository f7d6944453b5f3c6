"""The pages of a registry's site: the models, one model, one version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.numbers import interval, number, size
from fairkit_cli.pages.parts import Cell, Facts, Inline, Table, numbers, words
from fairkit_cli.registry.site.charts import charts
from fairkit_cli.render.document import FEED, linked_page
from fairkit_cli.render.html import MARKS, WORDS, html_facts, html_table, section
from fairkit_cli.render.markup import Content, Markup, name_of, tag
from fairkit_cli.text.registry import policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_cli.registry.site.evidence import Evidence
    from fairkit_cli.registry.site.gather import Seen, SeenAlias, SeenModel, SeenVersion
    from fairkit_registry.store.events import Event

SHOWN = 200
"""So many versions are on a model's own page; the others are on pages of `LISTED`."""
LISTED = 1000
_HOLDS = {True: ("holds", "pass"), False: ("DOES NOT HOLD", "fail"), None: ("not checked", "inconclusive")}


def index_page(seen: Seen, title: str, *, checkpoint: bool) -> str:
    """Return the page of all models."""
    rows: list[Sequence[Cell]] = []
    for model in seen.models:
        newest = model.versions[0]
        means = [
            [_alias_badge(one), " " if place < len(model.aliases) - 1 else None]
            for place, one in enumerate(model.aliases)
        ]
        rows.append(
            (
                tag("a", name_of(model.name), href=f"m/{model.name}/index.html"),
                f"{len(model.versions):,}",
                means or "none",
                _verdict(newest.deciding),
                _holds(newest.deciding),
                tag("span", newest.version.added_at[:10], class_="small"),
            )
        )
    columns = [
        *words("model"), *numbers("versions"), *words("aliases", "newest verdict", "its evidence", "newest")
    ]  # fmt: skip
    head = seen.events[0].digest if seen.events else ""
    entries: list[tuple[Inline, Inline]] = [
        ("Events in the log", f"{len(seen.events):,}"),
        ("Newest event", tag("code", head)),
    ]
    if checkpoint:
        entries.append(("Signed checkpoint", tag("a", "checkpoint", href="checkpoint")))
    entries.append(("Feed of events", tag("a", "feed.xml", href=FEED)))
    body: list[Content] = [
        tag("h1", title),
        tag("p", _WARNING, class_="subject"),
        html_table(Table("Models", columns, rows, sortable=len(rows) > 8))
        if rows
        else tag("p", "The registry has no model yet."),
        section("The newest events", _events(seen.events[:20], root="")),
        section("The registry", html_facts(Facts(entries))),
    ]
    return linked_page(title, body, root="")


_WARNING = (
    "These pages say what the registry's owner has found. Whoever must rely on it takes the certificates and checks "
    "them with a key of their own: fairkit verify CERT --key PUB."
)


def _alias_badge(seen: SeenAlias) -> Markup:
    version = seen.alias.version
    if version is None:
        return tag("span", name_of(seen.alias.alias), " → nothing yet", class_="muted")
    if seen.alias.ended is not None:
        return tag("span", name_of(seen.alias.alias), " → nothing any more", class_="badge fail")
    href = f"m/{seen.alias.name}/{version}.html"
    status = seen.verdict or "inconclusive"
    mark = tag("span", f" {MARKS[status]} {WORDS[status]}", class_=f"badge {status}")
    return tag("span", name_of(seen.alias.alias), " → ", tag("a", f"version {version}", href=href), mark)


def _verdict(found: Evidence | None) -> Inline:
    if found is None or not found.told:
        return "-"
    verdict = found.verdict
    return "no policy" if verdict is None else tag("span", WORDS[verdict], class_=f"badge {verdict}")


def _holds(found: Evidence | None) -> Inline:
    if found is None:
        return tag("span", "no certificate", class_="muted")
    word, status = _HOLDS[found.holds]
    return tag("span", word, class_=f"badge {status}")


def _events(events: Sequence[Event], *, root: str) -> Markup:
    """Return events as a table: when, what, by whom, and why."""
    rows: list[Sequence[Cell]] = [
        (
            str(event.seq),
            tag("span", event.at[:16].replace("T", " "), class_="small"),
            _event(event, root),
            name_of(str(event.body.get("by", ""))),
            reasons(event),
        )
        for event in events
    ]
    return html_table(Table("Events", words("event", "at (UTC)", "what", "by", "reasons"), rows))


def describe(event: Event) -> str:
    """Return an event in words."""
    body, name = event.body, event.name or ""
    version = body.get("version")
    said = {
        "add": f"{name}@{version} was added",
        "import": f"{name}@{version} was imported",
        "certify": f"a certificate was attached to {name}@{version}",
        "detach": f"a certificate was taken off {name}@{version}: {body.get('reason')}",
        "alias": f"what {name}@{body.get('alias')} asks for was set",
        "remove-alias": f"{name}@{body.get('alias')} was taken away",
        "promote": f"{name}@{body.get('alias')} points to version {version}",
        "demote": f"{name}@{body.get('alias')} was taken from version {body.get('taken_from')}",
        "revoke": f"revocation list number {body.get('sequence')} was taken in",
        "lock": f"a policy lock of {name} was registered",
    }
    return said.get(event.action, event.action)


def _event(one: Event, root: str) -> Inline:
    version = one.body.get("version")
    if one.name is None or version is None:
        return describe(one)
    return tag("a", describe(one), href=f"{root}m/{one.name}/{version}.html")


def reasons(event: Event) -> Inline:
    """Return why a promotion or a demotion was made, as the log has it."""
    texts = [str(text) for text in event.body.get("reasons", ())]
    evidence = event.body.get("evidence")
    if isinstance(evidence, dict):
        texts += [f"{key}: {value}" for key, value in evidence.items() if isinstance(value, str | int | float)]
    if not texts:
        return ""
    count = f"{len(texts)} reason{'s' * (len(texts) > 1)}"
    return tag("details", tag("summary", count), tag("ul", [tag("li", text) for text in texts]))


def model_page(model: SeenModel) -> str:
    """Return a model's page."""
    name, root = model.name, "../../"
    promoted = [one for one in model.events if one.action in ("promote", "demote")]
    older = range(0, len(model.versions), LISTED) if len(model.versions) > SHOWN else ()
    body: list[Content] = [
        tag("p", tag("a", "All models", href=f"{root}index.html"), class_="subject"),
        tag("h1", "Model ", name_of(name)),
        section("Aliases", *(_alias(one) for one in model.aliases))
        if model.aliases
        else tag("p", "No alias points to a version of this model yet."),
        *charts(model),
        section(
            "Versions",
            tag("p", tag("a", "Set any two versions side by side", href="compare.html")),
            versions_table(model.versions[:SHOWN]),
            *(
                tag("p", tag("a", f"versions from {_oldest(model, start)} to {model.versions[start].version.version}",
                             href=f"versions-{start // LISTED}.html"))
                for start in older
            ),
        ),
        section(
            "Promotions",
            _events(promoted[:SHOWN], root=root) if promoted else tag("p", "Nothing was promoted yet."),
        ),
    ]  # fmt: skip
    return linked_page(f"Model {name}", body, root=root)


def _oldest(model: SeenModel, start: int) -> int:
    return model.versions[min(start + LISTED, len(model.versions)) - 1].version.version


def list_page(model: SeenModel, start: int) -> str:
    """Return a page of `LISTED` versions."""
    back = tag("a", "Model ", name_of(model.name), href="index.html")
    listed = versions_table(model.versions[start : start + LISTED])
    title = f"Versions of {model.name}, from {_oldest(model, start)}"
    return linked_page(title, [tag("p", back, class_="subject"), tag("h1", title), listed], root="../../")


def _alias(seen: SeenAlias) -> Markup:
    version, status = seen.alias.version, seen.verdict or "inconclusive"
    requirements = tag("p", "Asks for: ", policy(seen.alias.policy))
    if version is None:
        return tag("div", tag("h3", name_of(seen.alias.alias)), tag("p", "Points to no version yet."), requirements)
    if seen.alias.ended is not None:
        ended = tag("p", tag("strong", "Means nothing"), f" {seen.alias.ended}.", class_="verdict fail")
        return tag("div", tag("h3", name_of(seen.alias.alias)), ended, requirements)
    phrases = {
        "pass": "still meets what the alias asks for",
        "fail": "does not meet what the alias asks for any more",
        "inconclusive": "cannot be decided now",
    }
    meant = [tag("a", f"version {version}", href=f"{version}.html"), f" {phrases[status]}."]
    banner = _banner(status, WORDS[status], meant)
    told = [tag("li", f"{kind}: {text}") for kind, text in seen.reasons]
    return tag("div", tag("h3", name_of(seen.alias.alias)), banner, requirements, tag("ul", told) if told else None)


def versions_table(versions: Sequence[SeenVersion]) -> Markup:
    """Return versions with their evidence."""
    rows: list[Sequence[Cell]] = [
        (
            tag("a", str(seen.version.version), href=f"{seen.version.version}.html"),
            ", ".join(seen.aliases),
            _verdict(seen.deciding),
            tag("span", "FILE DAMAGED", class_="badge fail") if seen.damage else _holds(seen.deciding),
            seen.version.added_at[:16].replace("T", " "),
            seen.version.parent or "",
            ", ".join(seen.version.tags),
            tag("code", seen.version.model[:12]),
        )
        for seen in versions
    ]
    columns = words("version", "aliases", "verdict", "evidence", "added (UTC)", "made of", "tags", "SHA-256")
    return html_table(Table("Versions", columns, rows, sortable=len(rows) > 8))


def version_page(name: str, seen: SeenVersion, ancestors: Sequence[str]) -> str:
    """Return a version's page."""
    version, deciding, root = seen.version, seen.deciding, "../../"
    title = f"{name}@{version.version}"
    entries: list[tuple[Inline, Inline]] = [
        ("SHA-256", tag("code", version.model)),
        ("Size", size(version.size)),
        ("Added", f"{version.added_at[:16].replace('T', ' ')} UTC"),
    ]
    entries += [("Aliases", ", ".join(seen.aliases))] if seen.aliases else []
    entries += [("Tags", ", ".join(version.tags))] if version.tags else []
    entries += [("Notes", version.notes)] if version.notes else []
    entries += [("Comes from", version.origin)] if version.origin else []
    body: list[Content] = [
        tag("p", tag("a", "Model ", name_of(name), href="index.html"), class_="subject"),
        tag("h1", name_of(title)),
        _banner("fail", "The model's file is damaged", seen.damage) if seen.damage else None,
        html_facts(Facts(entries)),
        _lineage(seen, ancestors),
        *([_certificate(each, root) for each in seen.evidence] or [tag("p", _NOBODY, class_="verdict inconclusive")]),
        section("What was measured", *_measured(deciding)) if deciding is not None and deciding.told else None,
    ]
    return linked_page(title, body, root=root)


_NOBODY = "This version has no certificate: nobody vouches for it."


def _banner(status: str, word: str, text: Content) -> Markup:
    mark = tag("strong", tag("span", MARKS[status], aria_hidden="true"), f" {word}")
    return tag("p", mark, ": ", text, class_=f"verdict {status}")


def _lineage(one: SeenVersion, ancestors: Sequence[str]) -> Markup | None:
    if not ancestors and not one.children:
        return None
    before = [_to(each) for each in ancestors]
    after = [_to(each) for each in one.children[:SHOWN]]
    return section(
        "Lineage",
        tag("p", "Made of: ", _joined(before)) if before else None,
        tag("p", "Made of it: ", _joined(after)) if after else None,
    )


def _joined(links: Sequence[Markup]) -> list[Content]:
    return [[", " if place else None, one] for place, one in enumerate(links)]


def _to(reference: str) -> Markup:
    name, _, number_ = reference.rpartition("@")
    return tag("a", name_of(reference), href=f"../{name}/{number_}.html")


def _certificate(evidence: Evidence, root: str) -> Markup:
    word, status = _HOLDS[evidence.holds]
    link = tag("a", f"certificate {evidence.digest[:12]}", href=f"{root}certificates/{evidence.digest}.json")
    if not evidence.told:
        return _banner(status, word.capitalize(), [link, ": ", evidence.why])
    keys = ", ".join(evidence.told["keys"])
    data, _, rows = evidence.told["data"]
    said: list[Content] = [
        link, f", audited {evidence.audited} UTC on ", name_of(str(data)), f", {rows:,} rows. ",
        f"Signed by key {keys}, which an alias of the model trusts." if evidence.holds else f"{evidence.why}.",
    ]  # fmt: skip
    if evidence.told["locked"]:
        said.append(" Policy, table and settings were locked beforehand.")
    if evidence.told["unusual"]:
        said.append(f" Settings that are not the default: {'; '.join(evidence.told['unusual'])}.")
    if evidence.told.get("copies"):
        links = [tag("a", one[:12], href=f"{root}certificates/{one}.json") for one in evidence.told["copies"]]
        said.append([" The same statement is attached in other files, too: ", _joined(links), "."])
    rules = [
        tag("li", tag("span", f"{MARKS[rule[3]]} {WORDS[rule[3]]}", class_=f"badge {rule[3]}"), f" {rule[4]}")
        for rule in evidence.told["rules"]
    ]
    verdict = evidence.verdict
    head = "Certificate" if verdict is None else f"Certificate: {WORDS[verdict]}"
    return section(head, _banner(status, word.capitalize(), said), tag("ul", rules, class_="rules") if rules else None)


def _measured(evidence: Evidence) -> list[Content]:
    rows: list[Sequence[Cell]] = [
        (title, number(value), interval(None if low is None else (low, high)))
        for title, value, low, high, _ in evidence.told["numbers"]
    ]
    caution = None
    if evidence.holds is not True:
        caution = tag("p", "These numbers are a claim: no trusted key vouches for them.", class_="gap")
    columns = [*words("number"), *numbers("value", "interval")]
    return [caution, html_table(Table("What was measured", columns, rows))]
