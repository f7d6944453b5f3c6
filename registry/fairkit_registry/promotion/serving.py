"""The model as it is served: rows that may meet, outputs that nobody audited, inputs never fed, ways never tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.promotion.case import Case


def check_serving(case: Case, deciding: Certificate) -> None:
    """Refuse what the audit could not show of the served model.

    That rows stay apart is shown again, here and from the registered file: no certificate is believed about it.
    """
    from fairkit_onnx.plain import doubt

    serving = deciding.report.model.serving
    path = case.registry.blobs.path(case.version.model)
    try:
        why = doubt(serving.get("rows"), path.read_bytes(), path.parent)
    except OSError as error:
        why = f"the file cannot be read ({error.strerror})"
    if why is not None:
        case.refuse(why)
    probed = serving.get("probed")
    if not isinstance(probed, dict) or probed.get("untried"):
        case.refuse("the model was not run again in every other way: audit it again")
    for key, what in (("outputs", "was not audited"), ("inputs", "was never fed")):
        named = serving.get(key)
        for name, why in (named if isinstance(named, dict) else {}).items():
            case.refuse(f"the {key[:-1]} {name!r} {what}: {why}")
