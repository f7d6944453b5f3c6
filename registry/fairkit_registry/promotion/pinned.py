"""The settings, the table and the rows of an audit, held against what an alias pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence import pins
from fairkit_registry.evidence.keys import parse_public
from fairkit_registry.evidence.tables import verify_statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.promotion.decision import Case

_SHOWN = 5


def fitting(case: Case, found: Iterable[Certificate]) -> list[Certificate]:
    """Return the certificates whose settings are those that the alias pins, or the default."""
    pinned = case.alias.policy.settings
    return [one for one in found if not any(pins.deviations(_as_served(case, one), pinned))]


def check_settings(case: Case, deciding: Certificate, current: Certificate | None) -> None:
    """Refuse an audit whose settings are neither pinned nor the default, naming each.

    What has no default (the label, its favorable value, the sensitive columns) must be as in the current
    version's certificate where it is not pinned.
    """
    policy, settings = case.alias.policy, _as_served(case, deciding)
    command = f"fairkit registry alias {case.version.name} {case.alias.alias} --like CERT"
    for text in pins.deviations(settings, policy.settings):
        case.refuse(f"setting {text}. `{command}` pins the settings of a certificate")
    found = pins.named(settings)
    before = {} if current is None else pins.named(current.settings)
    for name in _free(case, found):
        if name in before and not pins.same(name, found[name], before[name]):
            case.refuse(
                f"setting {name} is {pins.shown(found[name])}, in the certificate of the current version "
                f"{case.version.name}@{case.alias.version} it is {pins.shown(before[name])}, and the alias does "
                f"not pin it. `{command}` pins the settings of a certificate"
            )


def _free(case: Case, found: Mapping[str, object]) -> list[str]:
    """Return the settings without a default that the alias does not pin."""
    return [name for name in pins.CHOSEN if name not in case.alias.policy.settings and found.get(name)]


def note_choices(case: Case, deciding: Certificate) -> None:
    """Note the settings that the alias left to the signer, and those that are not the default."""
    policy, report = case.alias.policy, deciding.report
    odd = pins.lines(deciding.settings)
    if odd:
        case.note(f"settings of the audit that are not the default: {'; '.join(odd)}")
    found = pins.named(deciding.settings)
    free = [f"{name} {pins.shown(found[name])}" for name in _free(case, found)]
    if free:
        case.note(f"not pinned by the alias, so the signer's choice: {', '.join(free)}")
    if not policy.rules and report.verdict == "pass":
        rules = ", ".join(f"{one.metric}:{one.sensitive or 'all rows'}" for one in report.policy)
        case.note(f"the alias has no rules, so what a pass takes was the signer's choice: {rules}")
    if not policy.data and not policy.data_keys:
        case.note(
            f"the alias names no table (--data), so the rows were the signer's choice: {report.data.name}, "
            f"{report.data.rows:,} rows, content {report.data.sha256[:16]}"
        )
    if report.data.dropped_rows:
        case.note(f"{report.data.dropped_rows:,} rows of {report.data.name} were left out of the audit")


def _as_served(case: Case, deciding: Certificate) -> dict[str, object]:
    """Return the settings without features that are only the names of the model's own inputs."""
    settings = {**deciding.settings}
    data = dict(settings.get("data", {}))
    features = data.get("features")
    if features and "data.features" not in case.alias.policy.settings and _are_inputs(case, features):
        settings["data"] = {**data, "features": None}
    return settings


def _are_inputs(case: Case, features: list[str]) -> bool:
    """Tell whether the features are exactly the inputs of the graph, each of which takes one column."""
    from fairkit_registry.errors import RegistryError
    from fairkit_registry.onnxfile import summarise

    try:
        graph = summarise(case.registry.blobs.path(case.version.model))
    except (RegistryError, OSError):
        return False
    names = {text.rpartition(": ")[0] for text in graph.inputs}
    return len(features) > 1 and names - {"u"} == set(features)


def check_rows(case: Case, deciding: Certificate) -> None:
    """Refuse groups that are too small, and rows that were left out through a column of the signer's choice."""
    policy, data = case.alias.policy, deciding.report.data
    if policy.data_keys and not policy.unseen:  # who seals rows has signed for them
        _check_signed(case, deciding)
    if policy.min_rows is not None:
        for text in _small(deciding, policy.min_rows):
            case.refuse(text)
    if data.dropped_rows:
        _check_dropped(case, deciding)


def _check_signed(case: Case, deciding: Certificate) -> None:
    """Refuse a table that none of the alias's keys for tables has signed."""
    trusted = [parse_public(pem) for pem in case.alias.policy.data_keys]
    data = deciding.report.data
    for raw in deciding.table_statements:
        try:
            found = verify_statement(raw, trusted, data_sha256=data.sha256)
        except CertificateError:
            continue
        purpose = f": {found.purpose}" if found.purpose else ""
        case.note(f"the table {found.name} is signed by key {found.keyids[0][:16]}{purpose}")
        return
    case.refuse(
        f"the alias asks for a table that one of its keys for tables has signed, and the certificate has no such "
        f"statement about {data.name} ({data.sha256[:16]}): `fairkit sign-data TABLE --key KEY --output STATEMENT`, "
        "then `fairkit certify ... --signed-data STATEMENT`"
    )


def _small(deciding: Certificate, least: int) -> Iterator[str]:
    data = deciding.report.data
    if not data.groups and data.rows < least:
        yield f"the audit has {data.rows:,} rows; the alias asks for at least {least:,}"
    for sensitive, sizes in data.groups.items():
        small = [f"{group} {rows:,}" for group, rows in sizes.items() if rows < least]
        if small:
            more = f" and {len(small) - _SHOWN} more" if len(small) > _SHOWN else ""
            yield (
                f"groups of {sensitive} with fewer than the {least:,} rows that the alias asks for: "
                + ", ".join(small[:_SHOWN])
                + more
            )


def _check_dropped(case: Case, deciding: Certificate) -> None:
    """Refuse rows left out through a sensitive column that no rule of the alias is about."""
    policy, data = case.alias.policy, deciding.report.data
    asked = {part for rule in policy.rules for part in str(rule.get("sensitive") or "").split("+")}
    extra = sorted({part for name in data.groups for part in name.split("+")} - asked)
    if policy.rules and extra and "data.sensitive" not in policy.settings:
        case.refuse(
            f"{data.dropped_rows:,} rows were left out, and setting data.sensitive has columns that no rule of the "
            f"alias names and that the alias does not pin ({', '.join(extra)}): a row without a value there is left out"
        )
