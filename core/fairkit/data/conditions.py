"""What cannot be meant by references, strata, clusters and group probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairkit.data.roles import proxy_of, reference_of, require_columns
from fairkit.errors import DataError

if TYPE_CHECKING:
    from fairkit.data.roles import Roles


def check_conditions(roles: Roles, columns: Sequence[str], table: str) -> None:
    """Refuse references, strata, clusters and group probabilities that cannot be meant."""
    require_columns([roles.cluster], columns, role="cluster", table=table)
    require_columns([roles.query], columns, role="query", table=table)
    _check_query(roles)
    _check_labelled(roles, columns, table)
    named = dict(map(proxy_of, roles.sensitive_probability))
    for shares in named.values():
        require_columns(shares, columns, role="probability", table=table)
    splits = [split.name for split in roles.sensitive]
    within = [split.name for split in roles.within]
    compared = [reference_of(text, splits)[0] for text in roles.reference]
    for role, names in (("within", within), ("reference", compared), ("sensitive", [*splits, *named])):
        twice = [name for name in names if names.count(name) > 1]
        if twice or len(named) < len(roles.sensitive_probability):
            raise DataError(f"`{role}` names {(twice or list(named))[0]!r} twice; name it once")
    for split in roles.within:
        parts = [s for s in roles.sensitive if set(s.columns) <= set(split.columns)]
        if parts:
            raise DataError(
                f"the strata of {split.name!r} have one group of {parts[0].name!r} only, as it is a part of them; "
                "leave it out of `within`"
            )
    if roles.within and not roles.sensitive:
        raise DataError("`within` compares the groups of a sensitive column inside strata; name one with `sensitive`")


def _check_labelled(roles: Roles, columns: Sequence[str], table: str) -> None:
    """Refuse a design of labels where there are none, and beside conditions under which it was not measured."""
    if roles.labelled is None:
        return
    if roles.label is None:
        raise DataError("`labelled` says how rows with an outcome were chosen: name the column of outcomes as `label`")
    if roles.favorable is None:
        raise DataError("`labelled` is for outcomes of two kinds: say which is good for the person with `favorable`")
    refused: list[tuple[str, Any]] = [("cluster", roles.cluster), ("query", roles.query), ("within", roles.within)]
    refused.append(("sensitive_probability", roles.sensitive_probability))
    if roles.labelled.kind == "selective":
        refused.append(("reference", roles.reference))
    for name, value in refused:
        if value:
            raise DataError(
                f"`labelled` and `{name}` cannot be used together: such intervals were not measured; leave one out"
            )
    for column in roles.labelled.columns:
        if column not in columns and column in ("decision", "d"):
            raise DataError(
                f"{table}: `labelled` by={column}: the decision is no column of the table. Write decisions into it and "
                "audit them with `predictions`, or draw the rows with `fairkit plan --draw`"
            )
    require_columns(roles.labelled.columns, columns, role="labelled", table=table)


def _check_query(roles: Roles) -> None:
    """Refuse what has no meaning in rankings."""
    if roles.query is None:
        return
    declared = {
        "cluster": roles.cluster,
        "within": roles.within,
        "reference": roles.reference,
        "sensitive_probability": roles.sensitive_probability,
    }
    used = next((name for name, value in declared.items() if value), None)
    if used is not None:
        raise DataError(
            f"`{used}` and `query` cannot be used together: groups of a ranking are compared inside queries, and "
            f"queries are the independent units; leave `{used}` out"
        )
    if roles.weights is not None:
        raise DataError("`query` and `weights` cannot be used together: queries count the same; leave out `weights`")
    taken = {roles.label, *(column for split in roles.sensitive for column in split.columns)}
    if roles.query in taken:
        raise DataError(f"column {roles.query!r} cannot be the `query` and the label or a sensitive column at once")
