"""The model as it is served: rows that may meet, outputs that nobody audited, inputs never fed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.errors import FairkitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.promotion.case import Case

_SHOWN = 4


def check_serving(case: Case, deciding: Certificate) -> None:
    """Refuse what the audit could not show of the served model.

    That rows stay apart is proved again, here and from the registered file: no certificate is believed about it.
    """
    serving = deciding.report.model.serving
    met = _meeting(case, deciding)
    if met:
        more = f" and {len(met) - _SHOWN} more" if len(met) > _SHOWN else ""
        case.refuse(
            "it is not proved that each row is answered from itself alone, whatever the size of the batch: rows may "
            f"meet at {', '.join(met[:_SHOWN])}{more}"
        )
    for key, what in (("outputs", "was not audited"), ("inputs", "was never fed")):
        named = serving.get(key)
        for name, why in (named if isinstance(named, dict) else {}).items():
            case.refuse(f"the {key[:-1]} {name!r} {what}: {why}")


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
