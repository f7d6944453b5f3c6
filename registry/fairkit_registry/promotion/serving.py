"""The model as it is served: rows that may meet, outputs that nobody audited, inputs never fed, unlike machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.errors import FairkitError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.promotion.decision import Case

_SHOWN = 4


def check_serving(case: Case, deciding: Certificate) -> None:
    """Refuse what the audit could not show of the served model, unless the alias allows it by name.

    That rows stay apart is proved again, here and from the registered file: no certificate is believed about it.
    """
    policy, serving = case.alias.policy, deciding.report.model.serving
    command = f"fairkit registry alias {case.version.name} {case.alias.alias}"
    met = [one for one in _meeting(case, deciding) if one not in policy.operators]
    if met:
        case.refuse(
            "it is not proved that each row is answered from itself alone, whatever the size of the batch: rows may "
            f"meet at {_listed(met)}. `{command} --allow-operator {met[0]}` allows it"
        )
    for key, allowed, option, what in (
        ("outputs", policy.outputs, "--allow-output", "was not audited"),
        ("inputs", policy.inputs, "--allow-input", "was never fed"),
    ):
        found = _named(serving.get(key))
        for name, why in found.items():
            if name not in allowed:
                case.refuse(f"the {key[:-1]} {name!r} {what}: {why}. `{command} {option} {name}` allows it")
    for text in deciding.report.model.notes:
        case.note(f"of the model, says its audit: {text}")


def _meeting(case: Case, deciding: Certificate) -> Sequence[str]:
    """Return the operators of the registered file at which rows may meet."""
    from fairkit_onnx.file import served_proof

    told = deciding.report.model
    names = [told.outputs[key] for key in ("score", "decision") if isinstance(told.outputs.get(key), str)]
    rows = told.serving.get("rows")
    widths = rows.get("widths", {}) if isinstance(rows, dict) else {}
    try:
        return served_proof(case.registry.blobs.path(case.version.model), names, widths).operators
    except (FairkitError, OSError) as error:
        return [f"a file that cannot be read ({error})"]


def _named(value: Any) -> Mapping[str, str]:
    return {str(name): str(why) for name, why in value.items()} if isinstance(value, dict) else {}


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def machine(one: Certificate) -> tuple[str, ...] | None:
    """Return the machine of an audit: processor, threads, system; None where it is unknown."""
    found = one.report.environment.get("machine")
    if not isinstance(found, dict):
        return None
    return tuple(str(found.get(key)) for key in ("processor", "threads", "system"))


def from_machines(case: Case, found: Iterable[Certificate], newest: Sequence[Certificate]) -> list[Certificate]:
    """Return the newest certificate of each other machine; too few machines are a refusal."""
    by_machine: dict[tuple[str, ...], Certificate] = {}
    for certificate in sorted(found, key=lambda one: (one.audited_at, one.statement_sha256)):
        place = machine(certificate)
        if place is not None:
            by_machine[place] = certificate
    wanted = case.alias.policy.machines
    if len(by_machine) < wanted:
        shown = "; ".join(", ".join(place) for place in sorted(by_machine)) or "none says which"
        case.refuse(
            f"the alias asks for certificates from {wanted} unlike machines (processor, threads, system); there are "
            f"{len(by_machine)}: {shown}"
        )
    decided = {one.statement_sha256 for one in newest}
    return [one for one in by_machine.values() if one.statement_sha256 not in decided]
