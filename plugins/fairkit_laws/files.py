"""The file of a pack: title, source and dates, the facts that a person fills in, and the items in the law's order."""

from __future__ import annotations

import datetime
import hashlib
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from fairkit.errors import ConfigError, did_you_mean
from fairkit.packs import Fact, PackFile
from fairkit_laws.clauses import AgeLimit, Clause, LawFile
from fairkit_laws.tables import BUILDERS
from fairkit_laws.validity import KEYS, read_validity

_KINDS = ("text", "date", "flag")


class PackError(ConfigError):
    """A pack, or a file of facts, that cannot be used."""


AUDIT_KEYS = ("intersections", "reference", "scores")
REFUSALS = ("sensitive_probability",)
_NAME = re.compile(r"[a-z0-9-]+(@[0-9]{4}-[0-9]{2}-[0-9]{2})?")


def read_pack(name: str, text: str) -> LawFile:
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
    facts = tuple(_made(Fact, one, f"{where}, a fact") for one in _tables(record.pop("facts", []), where))
    items = tuple(_item(one, where, inherited) for one in _tables(record.pop("items", []), where))
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
    if not isinstance(refuses, list) or any(one not in REFUSALS for one in refuses):
        raise PackError(f"{where}: refuses is a list of {', '.join(REFUSALS)}")
    if refuses and not own.get("refuses_because"):
        raise PackError(f"{where}: refuses_because says which clause refuses {', '.join(refuses)}")
    return tuple(refuses)


def _age_limit(value: Any, where: str) -> AgeLimit | None:
    if value is None:
        return None
    known = isinstance(value, Mapping) and set(value) == {"years", "clause"}
    if not known or type(value["years"]) is not int or value["years"] < 1 or not isinstance(value["clause"], str):
        raise PackError(f'{where}: age_limit is a table, as {{ years = 1, clause = "5-301(a)" }}')
    return AgeLimit(**value)


def _check_named(items: Sequence[Clause], facts: Sequence[Fact], where: str) -> None:
    if not items:
        raise PackError(f"{where} has no [[items]]: what does the law ask?")
    known = {fact.key for fact in facts}
    for item in items:
        for key in item.facts:
            if key not in known:
                hint = did_you_mean(key, known, what="facts")
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
    if not isinstance(thresholds, Mapping) or any(type(one) not in (int, float) for one in thresholds.values()):
        raise PackError(f"{at}: thresholds is a table of numbers by the words that name them")
    for words in thresholds:
        if words not in (validity.quote or ""):
            raise PackError(f"{at}: the quote does not have the words {words!r} of a threshold")
    made: Clause = _made(
        Clause, entries | {"facts": tuple(entries.get("facts", ())), "validity": validity}, f"{where}, an item"
    )
    return made


def _tables(value: Any, where: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise PackError(f"{where}: [[facts]] and [[items]] are lists of tables")
    return value


def _keys(
    record: Mapping[str, Any], cls: type, where: str, out: Sequence[str] = (), more: Collection[str] = ()
) -> None:
    known = {each.name for each in fields(cls)} - set(out) | set(more)
    for key in record:
        if key not in known:
            raise PackError(f"{where} has no key {key!r}. {did_you_mean(key, known, what='keys')}")


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
