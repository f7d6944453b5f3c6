"""The file of a pack: title, source and dates, the facts that a person fills in, and the items in the law's order."""

from __future__ import annotations

import datetime
import hashlib
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from fairkit.errors import ConfigError, did_you_mean
from fairkit.packs import Answered, Fact, PackFile, PackTable, Rendering
from fairkit_laws import impact, technical
from fairkit_laws.clauses import AMBER, KEYS, AgeLimit, Clause, LawFile, clause_record, flags_of, law_of, read_validity
from fairkit_laws.impact import Context, NotAnsweredError

if TYPE_CHECKING:
    from fairkit.results.report import Report


_KINDS = ("text", "date", "flag")


class PackError(ConfigError):
    """A pack, or a file of facts, that cannot be used."""


AUDIT_KEYS = ("intersections", "reference", "scores")
REFUSALS = ("sensitive_probability",)
_NAME = re.compile(r"[a-z0-9-]+(@[0-9]{4}-[0-9]{2}-[0-9]{2})?")


def read(name: str, text: str) -> LawFile:
    """Read a pack's TOML."""
    try:
        record = tomllib.loads(text)
    except ValueError as error:
        raise PackError(f"the pack {name!r} is not valid TOML: {error}") from error
    where = f"the pack {name!r}"
    if not _NAME.fullmatch(name):
        raise PackError(f"{where}: a name has small letters, digits and hyphens")
    _keys(record, LawFile, where, out=("name", "validity", "sha256"), more=KEYS)
    if type(record.get("checked")) is not datetime.date:
        raise PackError(f"{where}: checked is a date without quotes, as in checked = 2026-01-31")
    if {"quote", "text_sha256"} & set(record):
        raise PackError(f"{where}: quote and text_sha256 belong to an item, which is about one clause")
    validity, inherited = read_validity(record, {}, _failing(where))
    facts = tuple(_made(Fact, table, f"{where}, a fact") for table in _tables(record.pop("facts", []), where))
    items = tuple(_item(table, where, inherited) for table in _tables(record.pop("items", []), where))
    audit = record.pop("audit", {})
    if not isinstance(audit, Mapping) or set(audit) - set(AUDIT_KEYS):
        raise PackError(f"{where}: [audit] has the keys {', '.join(AUDIT_KEYS)}, and no other")
    _check_named(items, facts, where)
    _check_facts(facts, where)
    entries = {key: value for key, value in record.items() if key not in KEYS}
    made: LawFile = _made(
        LawFile,
        entries
        | {"name": name, "items": items, "facts": facts, "audit": audit, "validity": validity}
        | {"checked": validity.checked}
        | {"sha256": hashlib.sha256(text.encode("utf-8")).hexdigest()}
        | {"refuses": _refusals(entries, where), "age_limit": _age_limit(entries.get("age_limit"), where)},
        where,
    )
    return made


def _failing(where: str) -> Any:
    def fail(text: str) -> Any:
        raise PackError(f"{where}: {text}")

    return fail


def _refusals(own: Mapping[str, Any], where: str) -> tuple[str, ...]:
    refuses = own.get("refuses", [])
    if not isinstance(refuses, list) or any(refuse not in REFUSALS for refuse in refuses):
        raise PackError(f"{where}: refuses is a list of {', '.join(REFUSALS)}")
    if refuses and not own.get("refuses_because"):
        raise PackError(f"{where}: refuses_because says which clause refuses {', '.join(refuses)}")
    return tuple(refuses)


def _age_limit(value: Any, where: str) -> AgeLimit | None:
    if value is None:
        return None
    is_valid = isinstance(value, Mapping) and set(value) == {"years", "clause"}
    if not is_valid or type(value["years"]) is not int or value["years"] < 1 or not isinstance(value["clause"], str):
        raise PackError(f'{where}: age_limit is a table, as {{ years = 1, clause = "5-301(a)" }}')
    return AgeLimit(**value)


def _check_named(items: Sequence[Clause], facts: Sequence[Fact], where: str) -> None:
    if not items:
        raise PackError(f"{where} has no [[items]]: what does the law ask?")
    keys = {fact.key for fact in facts}
    for item in items:
        for key in item.facts:
            if key not in keys:
                hint = did_you_mean(key, keys, what="facts")
                raise PackError(f"{where}: {item.clause} names the fact {key!r}. {hint}")
        if item.table is not None and item.table not in BUILDERS:
            hint = did_you_mean(item.table, BUILDERS, what="tables")
            raise PackError(f"{where}: {item.clause} names the table {item.table!r}. {hint}")


def _check_facts(facts: Sequence[Fact], where: str) -> None:
    if any(fact.kind not in _KINDS for fact in facts):
        raise PackError(f"{where}: a fact's kind is {', '.join(_KINDS)}")
    flags = [fact.key for fact in facts if fact.kind == "flag"]
    for fact in facts:
        if fact.required_with is not None and fact.required_with not in flags:
            hint = did_you_mean(fact.required_with, flags, what="flags")
            raise PackError(f"{where}: {fact.key} is required_with {fact.required_with!r}. {hint}")


def _item(record: Mapping[str, Any], where: str, inherited: Mapping[str, Any]) -> Clause:
    at = f"{where}, {record.get('clause', 'an item')}"
    entries = {key: value for key, value in record.items() if key not in KEYS}
    if not isinstance(entries.get("facts", []), list):
        raise PackError(f"{where}: facts of an item is a list of keys")
    if not isinstance(entries.get("options", {}), Mapping):
        raise PackError(f"{where}: options of an item is a table")
    validity, _ = read_validity(record, inherited, _failing(at))
    thresholds = entries.get("thresholds", {})
    if not isinstance(thresholds, Mapping) or any(type(number) not in (int, float) for number in thresholds.values()):
        raise PackError(f"{at}: thresholds is a table of numbers by the words that name them")
    for threshold in thresholds:
        if threshold not in (validity.quote or ""):
            raise PackError(f"{at}: the quote does not have the words {threshold!r} of a threshold")
    made: Clause = _made(
        Clause, entries | {"facts": tuple(entries.get("facts", ())), "validity": validity}, f"{where}, an item"
    )
    return made


def _tables(value: Any, where: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise PackError(f"{where}: [[facts]] and [[items]] are lists of tables")
    return value


def _keys(
    record: Mapping[str, Any], cls: type, where: str, out: Sequence[str] = (), more: Collection[str] = ()
) -> None:
    names = {each.name for each in fields(cls)} - set(out) | set(more)
    for key in record:
        if key not in names:
            raise PackError(f"{where} has no key {key!r}. {did_you_mean(key, names, what='keys')}")


def _made(cls: Any, record: Mapping[str, Any], where: str) -> Any:
    _keys(record, cls, where)
    texts = {each.name for each in fields(cls) if each.type in ("str", "str | None", "FactKind")}
    for key in texts & set(record):
        if not isinstance(record[key], str) or not record[key].strip():
            raise PackError(f"{where}: {key} takes a text, not {record[key]!r}")
    for key in ("required", "must_hold"):
        if not isinstance(record.get(key, True), bool):
            raise PackError(f"{where}: {key} is true or false")
    try:
        return cls(**record)
    except TypeError as error:
        missing = str(error).partition(": ")[2] or str(error)
        raise PackError(f"{where} lacks {missing}") from None


def read_facts(pack: PackFile, record: Mapping[str, Any]) -> dict[str, str | bool]:
    """Check a person's facts against a pack: texts, dates as 2026-01-31, flags."""
    declared = {fact.key: fact for fact in pack.facts}
    stated: dict[str, str | bool] = {}
    for key, value in record.items():
        if key not in declared:
            raise PackError(f"the pack {pack.name!r} has no fact {key!r}. {did_you_mean(key, declared, what='facts')}")
        kind = declared[key].kind
        if kind == "flag" and isinstance(value, bool):
            stated[key] = value
        elif kind == "date" and (day := _date(value)) is not None:
            stated[key] = day
        elif kind == "text" and isinstance(value, str):
            if value.strip():
                stated[key] = value
        else:
            takes = {"flag": "true or false", "date": "a date as 2026-01-31", "text": "a text"}[kind]
            raise PackError(f"the fact {key!r} takes {takes}, not {value!r}")
    return stated


def _date(value: Any) -> str | None:
    if type(value) is datetime.date:
        return value.isoformat()
    try:
        return datetime.date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        return None


# The tables that packs ask for, by name: each is made from a report's numbers and says why where it cannot be.


Builder = Callable[[Context], Sequence[PackTable]]

BUILDERS: Mapping[str, Builder] = {
    "selection_rates": impact.selection_rates,
    "unknown": impact.unknown,
    "categories": impact.categories,
    "adverse_impact": impact.adverse_impact,
    "against_reference": impact.against_reference,
    "within_bands": impact.within_bands,
    "alternatives": technical.alternatives,
    "performance": technical.performance,
    "groups": technical.groups,
    "disparities": technical.disparities,
    "policy": technical.policy,
    "data": technical.data_sheet,
    "table-itself": technical.table_itself,
    "mitigation": technical.mitigation,
    "evidence": technical.evidence,
    "settings": technical.settings,
    "monitoring": technical.monitoring,
}
"""The tables that an item may name."""


# A pack filled with an audit: every item with its tables and facts, or with its gap.


class RefusedError(PackError):
    """The audit rests on what the law refuses; nothing is rendered."""


def render(
    pack: PackFile,
    report: Report,
    facts: Mapping[str, str | bool],
    certificate: Mapping[str, Any],
    *,
    today: datetime.date,
    accepted: Mapping[str, str] | None = None,
    watch: Mapping[str, Any] | None = None,
) -> Rendering:
    """Fill a pack."""
    law = _law(pack)
    declared = {fact.key: fact for fact in law.facts}
    context = Context(report=report, facts=facts, certificate=certificate, watch=watch)
    audited = datetime.date.fromisoformat(str(certificate["audited_at"])[:10]) if certificate else None
    if "sensitive_probability" in law.refuses and context.probable:
        columns = ", ".join(context.probable)
        raise RefusedError(
            f"the pack {law.name!r} refuses this audit: the groups of {columns} are only probable, and "
            f"{law.refuses_because}"
        )
    until = law.kept_until
    if until is not None and (audited is None or audited > until):
        base = law.name.partition("@")[0]
        when = "nobody has signed" if audited is None else f"is of {audited}"
        raise RefusedError(
            f"the edition {law.name!r} is for audits until {until}, and this one {when}: use `pack={base}`"
        )
    accepted = accepted or {}
    if unknown := sorted(set(accepted) - {*AMBER, "unread"}):
        raise PackError(f"`accept_status` takes {', '.join(AMBER)}, not {unknown[0]!r}")
    items = tuple(
        _answer(item, declared, context, audited, today, accepted, retained=until is not None) for item in law.items
    )
    notes = (*_age(law, audited, today), *_acceptances(accepted, items))
    return Rendering(pack=law, report=report, items=items, certificate=certificate, today=today, notes=notes)


def _answer(
    item: Clause,
    declared: Mapping[str, Fact],
    context: Context,
    audited: datetime.date | None,
    today: datetime.date,
    accepted: Mapping[str, str],
    *,
    retained: bool,
) -> Answered:
    tables: Sequence[PackTable] = ()
    gaps = []
    if item.table is not None:
        try:
            tables = BUILDERS[item.table](replace(context, options=item.options, thresholds=item.thresholds))
        except NotAnsweredError as reason:
            gaps.append(str(reason))
    facts = [replace(declared[key], required=declared[key].needed(context.facts)) for key in item.facts]
    stated = [(fact, context.facts.get(fact.key)) for fact in facts]
    gaps += [f"not stated: {fact.title}" for fact, value in stated if value is None and fact.required]
    gaps += [f"stated as not so: {fact.title}" for fact, value in stated if fact.must_hold and value is False]
    asks = item.table is not None or bool(item.facts)
    flags = flags_of(
        item.validity, item.clause, asks=asks, audited=audited, today=today, retained=retained, accepted=accepted
    )
    return Answered(
        item=item,
        tables=tuple(tables),
        facts=tuple(stated),
        gaps=tuple(gaps),
        law=law_of(item, audited, today),
        flags=tuple(flags),
    )


def _age(pack: LawFile, audited: datetime.date | None, today: datetime.date) -> Sequence[str]:
    if audited is None:
        return ("Nobody has signed these numbers.",)
    limit = pack.age_limit
    if limit is None or today <= _years_later(audited, limit.years):
        return ()
    years = "a year" if limit.years == 1 else f"{limit.years} years"
    return (f"The audit is of {audited}, more than {years} ago: {limit.clause} lets the tool be used no longer.",)


def _years_later(day: datetime.date, years: int) -> datetime.date:
    """Return the same date, years later: of 29 February the 28th."""
    try:
        return day.replace(year=day.year + years)
    except ValueError:
        return day.replace(year=day.year + years, day=28)


def _acceptances(accepted: Mapping[str, str], items: Sequence[Answered]) -> Sequence[str]:
    """Say who accepted what of the clauses' state, where something was to be accepted."""
    flags = [flag for item in items for flag in item.flags if flag.accepted]
    said = []
    amber = sum(flag.severity == "amber" for flag in flags)
    states = ",".join(sorted(set(accepted) - {"unread"}))
    if amber:
        said.append(f"Accepted although {states}: {amber} clauses that do not apply yet.")
    grey = sum(flag.severity == "grey" for flag in flags)
    if grey:
        said.append(f"Accepted by {accepted['unread']}: {grey} clauses that were not compared with the official text.")
    return said


def clauses(pack: PackFile, today: datetime.date) -> list[dict[str, Any]]:
    """Return a record of each clause."""
    law = _law(pack)
    return [clause_record(item, today, retained=law.kept_until is not None) for item in law.items]


def _law(pack: PackFile) -> LawFile:
    """Return a pack that `read` made."""
    if not isinstance(pack, LawFile):
        raise TypeError(f"{pack.name!r} was not read by this format")
    return pack
