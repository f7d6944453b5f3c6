"""`fairkit packs`: the renderings for laws that are installed; and what a pack adds to an audit."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fairkit.errors import ConfigError, ParameterError, did_you_mean
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import echo, print_json, say

if TYPE_CHECKING:
    from fairkit.packs.files import PackFile
    from fairkit.packs.rendering import Rendering
    from fairkit_cli.config import Config
    from fairkit_cli.evidence import Shown

PackName = Annotated[
    str | None,
    opt.option(
        "--pack", "NAME", "Run the audit that a law's rendering needs: `fairkit packs` lists them.", opt.DATA
    ),
]


def packs(output_format: opt.TableFormat = "table") -> None:
    """List the renderings for laws: name, law, source, and the day on which the source was checked."""
    found, failures = installed()
    if output_format == "json":
        print_json([pack.to_dict() for pack in found.values()])
    for pack in found.values() if output_format == "table" else ():
        echo(
            f"{pack.name}  {pack.title}",
            f"    {pack.law}",
            f"    {pack.source}, checked {pack.checked.isoformat()}",
            f"    facts: {', '.join(fact.key for fact in pack.facts) or 'none'}",
        )
    for failure in failures:
        say(failure)


def installed() -> tuple[dict[str, PackFile], list[str]]:
    """Return the packs by name, ours first, and why others cannot be used."""
    from fairkit.packs.files import built_in, read_pack
    from fairkit.plugins.finding import blame, third_party

    found, failures = built_in(), []
    loaded, _ = third_party()
    for plugin in loaded:
        for cls in plugin.packs:
            if cls.name in found:
                failures.append(
                    f"the pack {cls.name!r} of {plugin.found.name!r} is left out: the name is taken"
                )
                continue
            try:
                with blame(plugin.found, f"the pack {cls.name!r} gave its text"):
                    found[cls.name] = read_pack(cls.name, cls.text())
            except (ConfigError, ImportError) as error:
                failures.append(str(error))
    return found, failures


def find_pack(name: str) -> PackFile:
    """Return a pack by its name.

    Raises
    ------
    ParameterError
        There is none.
    """
    found, failures = installed()
    if name not in found:
        hint = did_you_mean(name, found, what="packs")
        raise ParameterError(f"there is no pack {name!r}. {hint} {' '.join(failures)}".strip())
    return found[name]


def read_facts_file(pack: PackFile, path: Path | None) -> dict[str, str | bool]:
    """Read the facts that a person stated.

    Raises
    ------
    ConfigError
        The file is missing, no TOML, or has what the pack does not know.
    """
    from fairkit.packs.files import read_facts

    if path is None:
        return {}
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the facts {str(path)!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"the facts {str(path)!r} are not valid TOML: {error}") from error
    return read_facts(pack, record)


def rendered(pack: PackFile, shown: Shown, facts: dict[str, str | bool]) -> Rendering:
    """Fill a pack with what a certificate states."""
    import datetime

    from fairkit.packs.rendering import render
    from fairkit_cli.evidence import stated_report
    from fairkit_cli.options.about import today

    stated = shown.certificate
    certificate: dict[str, Any] = {
        "sha256": stated.sha256,
        "audited_at": f"{stated.audited_at:%Y-%m-%dT%H:%M:%SZ}",
        "keyids": list(stated.keyids),
        "mitigation": stated.mitigation,
        "settings": stated.settings,
    }
    day = datetime.date.fromisoformat(today())
    return render(pack, stated_report(stated), facts, certificate, today=day)


def asked_by(
    name: str | None,
    columns: opt.DataOptions,
    conditions: opt.ConditionOptions,
    typed: opt.AuditOptions,
    predictions: Sequence[str] | None,
    config: Config,
) -> tuple[opt.DataOptions, opt.ConditionOptions, opt.AuditOptions]:
    """Add to what was typed what a pack's audit needs: intersections, references, the median as the threshold.

    Raises
    ------
    ParameterError
        There is no such pack, or no sensitive column is named.
    """
    if name is None:
        return columns, conditions, typed
    from fairkit_cli.options.data import listed

    wanted = find_pack(name).audit
    sensitive = opt.split_names(columns.sensitive) or listed(config.data.get("sensitive"))
    if not sensitive:
        raise ParameterError(f"the pack {name!r} needs the columns of the categories: --sensitive sex,race")
    single = [text for text in sensitive if "+" not in text]
    if wanted.get("intersections"):
        crossed = ["+".join(pair) for pair in combinations(single, 2)]
        sensitive = [*sensitive, *(text for text in crossed if text not in sensitive)]
        columns = replace(columns, sensitive=sensitive)
    if wanted.get("reference"):
        given = [*(conditions.reference or listed(config.data.get("reference")))]
        named = {text.partition("=")[0] for text in given}
        more = [f"{text.partition(':')[0]}={wanted['reference']}" for text in single]
        more = [text for text in more if text.partition("=")[0] not in named]
        conditions = replace(conditions, reference=[*given, *more])
    if wanted.get("scores"):
        typed = _at_the_median(columns, typed, predictions, config)
    return columns, conditions, typed


def _at_the_median(
    columns: opt.DataOptions, typed: opt.AuditOptions, predictions: Sequence[str] | None, config: Config
) -> opt.AuditOptions:
    """Put the threshold just above the median of the scores, where the tool scores and nothing else decides."""
    from fairkit.data.predictions import PredictionRoles

    told = config.data.get("predictions")
    roles = PredictionRoles.parse(predictions) if predictions else PredictionRoles.of(told) if told else None
    threshold = typed.threshold if typed.threshold is not None else config.model.get("threshold")
    if roles is None or roles.score is None or roles.decision is not None or threshold is not None:
        return typed
    import numpy as np

    dataset = opt.load_dataset(columns, config, predictions=roles)
    parts = [
        batch.column(roles.score).astype(float) for batch in dataset.batches([roles.score], partial=True)
    ]
    scores = np.concatenate(parts)
    if len(scores) == 0 or not np.isfinite(scores).all() or scores.min() < 0 or scores.max() >= 1:
        raise ParameterError(
            f"the scores in column {roles.score!r} must be numbers of at least 0 and below 1; divide them, which keeps "
            "their order: rates above the median depend on the order only"
        )
    median = float(np.median(scores))
    say(f"the tool scores: counted are scores above {median:.6g}, the median of all {len(scores):,} scores")
    return replace(typed, threshold=float(np.nextafter(median, 1.0)))
