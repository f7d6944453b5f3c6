"""The renderings for laws that are installed, and what a pack adds to an audit."""

from __future__ import annotations

import dataclasses
import tomllib
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fairkit.data.task import carried_by
from fairkit.errors import ConfigError, ParameterError, did_you_mean
from fairkit.support.files import read_small
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_cli import options as opt
from fairkit_cli.config import model_file
from fairkit_cli.terminal.output import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.data.roles import PredictionRoles
    from fairkit.packs import PackFile, Rendering
    from fairkit.settings import AuditSettings
    from fairkit_cli.config import Config
    from fairkit_cli.evidence import Shown
    from fairkit_onnx.file import OnnxModel


PackName = Annotated[
    str | None,
    opt.option("--pack", "NAME", "Run the audit that a law's rendering needs: `fairkit packs` lists them.", opt.DATA),
]
ToolScores = Annotated[
    bool,
    opt.Rare(
        "pack.tool_scores",
        "true, with --pack nyc-ll144: the model scores people; counted are scores above the median of all.",
    ),
]


def installed() -> tuple[dict[str, PackFile], list[str]]:
    """Return the packs by name, ours first, and why others cannot be used."""
    from fairkit.plugins.finding import blame, pack_plugins

    packs: dict[str, PackFile] = {}
    failures: list[str] = []
    plugins, pack_format = pack_plugins()
    for plugin in plugins:
        for cls in plugin.packs:
            if cls.name in packs:
                failures.append(f"the pack {cls.name!r} of {plugin.found.name!r} is left out: the name is taken")
                continue
            try:
                with blame(plugin.found, f"the pack {cls.name!r} gave its text"):
                    packs[cls.name] = pack_format.read(cls.name, cls.text())
            except (ConfigError, ImportError) as error:
                failures.append(str(error))
    return packs, failures


def find_pack(name: str) -> PackFile:
    """Return a pack by its name."""
    packs, failures = installed()
    base, _, edition = name.partition("@")
    if base in packs and packs[base].to_dict()["edition"] == edition:
        return packs[base]
    if name not in packs:
        hint = did_you_mean(name, packs, what="packs")
        raise ParameterError(f"there is no pack {name!r}. {hint} {' '.join(failures)}".strip())
    return packs[name]


def read_facts_file(pack: PackFile, path: Path | None) -> dict[str, str | bool]:
    """Read the facts that a person stated."""
    from fairkit.plugins.finding import pack_plugins

    if path is None:
        return {}
    try:
        facts = tomllib.loads(read_small(path))
    except OSError as error:
        raise ConfigError(f"the facts {str(path)!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"the facts {str(path)!r} are not valid TOML: {error}") from error
    return pack_plugins()[1].read_facts(pack, facts)


def rendered(
    pack: PackFile,
    shown: Shown,
    facts: dict[str, str | bool],
    accepted: Mapping[str, str] | None = None,
    watch: Mapping[str, Any] | None = None,
) -> Rendering:
    """Fill a pack with what a certificate states, and with a look at a watch."""
    import datetime

    from fairkit.plugins.finding import pack_plugins
    from fairkit_cli.evidence import stated_report
    from fairkit_cli.options.data import today

    stated = shown.certificate
    certificate: dict[str, Any] = {
        "sha256": stated.sha256,
        "audited_at": f"{stated.audited_at:%Y-%m-%dT%H:%M:%SZ}",
        "keyids": list(stated.keyids),
        "mitigation": stated.mitigation,
        "settings": stated.settings,
    }
    day = datetime.date.fromisoformat(today())
    return pack_plugins()[1].render(
        pack, stated_report(stated), facts, certificate, today=day, accepted=accepted, watch=watch
    )


def asked_by(
    name: str | None, columns: opt.DataOptions, conditions: opt.ConditionOptions, config: Config
) -> tuple[opt.DataOptions, opt.ConditionOptions]:
    """Add to what was typed what a pack's audit needs: intersections, references."""
    if name is None:
        return columns, conditions
    from fairkit_cli.options.data import listed

    pack = find_pack(name)
    wanted, refused = pack.audit, pack.to_dict()["refuses"].get("sensitive_probability")
    if refused and (conditions.sensitive_probability or config.data.get("sensitive_probability")):
        raise ParameterError(f"the pack {name!r} refuses --sensitive-probability: {refused}")
    sensitive = opt.split_names(columns.sensitive) or listed(config.data.get("sensitive"))
    if not sensitive:
        raise ParameterError(f"the pack {name!r} needs the columns of the categories: --sensitive sex,race")
    single = [text for text in sensitive if "+" not in text]
    if wanted.get("intersections"):
        crossed = ["+".join(pair) for pair in combinations(single, 2)]
        sensitive = [*sensitive, *(text for text in crossed if text not in sensitive)]
        columns = replace(columns, sensitive=sensitive)
    if wanted.get("reference"):
        references = [*(conditions.reference or listed(config.data.get("reference")))]
        named = {text.partition("=")[0] for text in references}
        more = [f"{text.partition(':')[0]}={wanted['reference']}" for text in single]
        more = [text for text in more if text.partition("=")[0] not in named]
        conditions = replace(conditions, reference=[*references, *more])
    return columns, conditions


def counted_above_the_median(
    name: str | None, subject: Subject, dataset: Dataset, settings: AuditSettings, *, scores: bool
) -> AuditSettings:
    """Put the threshold just above the median of all scores, where the law counts scores above it."""
    counts = name is not None and bool(find_pack(name).audit.get("scores"))
    if scores and not counts:
        raise ParameterError("pack.tool_scores belongs to a pack that counts scores: --pack nyc-ll144")
    roles = subject.predictions
    alone = roles is not None and roles.score is not None and roles.decision is None
    if not counts or not (scores or alone):
        return settings
    if settings.options.threshold is not None:
        if scores:
            raise ParameterError(
                "pack.tool_scores takes the median of all scores as the threshold: leave --threshold out"
            )
        return settings
    import numpy as np

    from fairkit.auditing.prepare import as_model

    found = _column_of_scores(dataset, roles) if roles is not None else _scores_of(subject, dataset, settings)
    median = float(np.median(found))
    if median >= 1:
        raise ParameterError("at least half of the scores are 1, so that none is above the median")
    options = replace(settings.options, threshold=float(np.nextafter(median, 1.0)))
    turned = roles is not None and as_model(None, dataset).bind(dataset, options).info.outputs.get("turned")
    if turned:  # a low score is the good one: strictly below the median
        options = replace(options, threshold=float(np.nextafter(median, 0.0)))
    side = "below" if turned else "above"
    say(f"the tool scores: counted are scores {side} {median:.6g}, the median of all {len(found):,} scores")
    return replace(settings, options=options)


def _column_of_scores(dataset: Dataset, roles: PredictionRoles) -> NDArray[np.float64]:
    import numpy as np

    if roles.score is None:
        raise ParameterError("pack.tool_scores needs the scores: --predictions score=COL")
    if roles.decision is not None:
        raise ParameterError("pack.tool_scores counts scores, not decisions: name --predictions score=COL alone")
    parts = [batch.column(roles.score).astype(float) for batch in dataset.batches([roles.score], partial=True)]
    scores = np.concatenate(parts) if parts else np.empty(0)
    if len(scores) == 0 or not np.isfinite(scores).all() or scores.min() < 0 or scores.max() >= 1:
        raise ParameterError(
            f"the scores in column {roles.score!r} must be numbers of at least 0 and below 1; divide them, which keeps "
            "their order: rates above the median depend on the order only"
        )
    return scores


def _scores_of(subject: Subject, dataset: Dataset, settings: AuditSettings) -> NDArray[np.float64]:
    import numpy as np

    from fairkit.auditing.prepare import as_model

    scorer = as_model(subject.model, dataset).bind(dataset, settings.options)
    parts = []
    for batch in dataset.batches(scorer.columns, partial=True):
        score = scorer.predict(batch.columns(scorer.columns)).score
        if score is None:
            raise ParameterError("pack.tool_scores needs scores, and this model gives decisions alone")
        parts.append(score)
    if not parts:
        raise ParameterError("there are no rows to score")
    return np.concatenate(parts)


# What a command audits: a model's file, a server's answers, or columns of the table in place of one.


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, or the columns that are audited in its place; `table` is a table that was named in place of a model."""

    model: OnnxModel | Any | None
    predictions: PredictionRoles | None
    table: str | None = None

    @property
    def record(self) -> dict[str, Any]:
        """Where the model answers, as a certificate keeps it; empty for a file and for columns."""
        return getattr(self.model, "record", {})

    def dataset(
        self, typed: opt.DataOptions, config: Config, conditions: opt.ConditionOptions | None = None
    ) -> Dataset:
        """Load the data that it is audited on."""
        file = "test" if "test" in config.data else "path"
        carried: dict[str, Any] = {} if self.model is None else dict(self.model.settings)
        if self.table is not None:
            if typed.data is not None:
                raise ParameterError(
                    f"{self.table} is a table, and so is --data: give a MODEL.onnx for --data, or leave --data out and "
                    f"name its columns: fairkit audit {self.table} --predictions decision=COL"
                )
            typed, carried = dataclasses.replace(typed, data=self.table), carried_by(self.table)
        return opt.load_dataset(typed, config, carried, file=file, predictions=self.predictions, conditions=conditions)

    def settings(self, settings: AuditSettings, typed: opt.AuditOptions, config: Config) -> AuditSettings:
        """Return the settings of the audit: answers are looked at by `correspondence` where no auditor is named.

        Of the configuration file's policy an audit of the table alone keeps the rules that its auditors measure.
        """
        if self.model is None and self.predictions is None and not (typed.maximums or typed.minimums):
            from fairkit import plugins

            others = plugins.third_party()[0]
            named = {
                measure
                for name in settings.auditors
                for measure in plugins.find_auditor(name, others)[0].measures(()) or ()
            }
            return dataclasses.replace(settings, policy=tuple(rule for rule in settings.policy if rule.metric in named))
        answers = self.predictions is not None and self.predictions.answer is not None
        if not answers or typed.auditors or config.audit.get("auditors"):
            return settings
        rest = (name for name in settings.auditors if name not in ("group", "correspondence"))
        return dataclasses.replace(settings, auditors=("correspondence", *rest))


def chosen(
    model: str | None,
    predictions: Sequence[str] | None,
    config: Config,
    served: opt.EndpointOptions | None = None,
    auditors: Sequence[str] = (),
) -> Subject:
    """Return the audit's subject; the command line wins over the configuration file."""
    from fairkit.data.roles import PredictionRoles

    if served is not None and (answering := _answering(model, predictions, config, served)) is not None:
        return Subject(answering, None)
    columns = config.data.get("predictions")
    if model is not None and model.endswith((".parquet", ".csv")) and Path(model).exists():
        roles = PredictionRoles.parse(predictions) if predictions else PredictionRoles(answer="answer")
        return Subject(None, roles, model)
    if model is not None:
        if predictions:
            raise ParameterError("give a model or --predictions, not both: which of the two is audited?")
        if columns:
            say("the model is audited, not the [data] predictions of the configuration file")
        return Subject(load_model(model, config), None)
    if predictions:
        return Subject(None, PredictionRoles.parse(predictions))
    if _looks_at_tables(auditors):
        return Subject(None, None)
    if not columns:
        raise ParameterError(
            "what is audited? Give a MODEL.onnx, or name columns of the data with "
            "--predictions decision=COL,score=COL, or a server with --endpoint URL"
        )
    return Subject(None, PredictionRoles.of(columns))


def _looks_at_tables(auditors: Sequence[str]) -> bool:
    """Tell whether auditors were named, and all of them look at the table alone."""
    from fairkit import plugins

    others = plugins.third_party()[0] if auditors else []
    return bool(auditors) and all(plugins.find_auditor(name, others)[0].tasks == {"table"} for name in auditors)


def _answering(
    model: str | None, predictions: Sequence[str] | None, config: Config, served: opt.EndpointOptions
) -> Any:
    """Return the model behind a server, where one is named; the configuration file's only where nothing else is."""
    source = "a model" if model is not None else "--predictions" if predictions else None
    if served.endpoint is not None and source is not None:
        raise ParameterError(f"give {source} or --endpoint, not both: which of the two is audited?")
    if source is not None:
        if served.typed:
            raise ParameterError(f"the options of an endpoint mean nothing for {source}: they need --endpoint URL")
        return None
    settings = served.chosen(config)
    if settings is None:
        return None
    from fairkit.plugins import model_source

    return model_source("endpoint").open(settings)


def load_model(model: str, config: Config) -> OnnxModel:
    """Load a model from a file, or by its name in the registry, which says more than the file's digest."""
    from fairkit_onnx.file import OnnxModel

    path = model_file(model, config)
    loaded = OnnxModel.load(path)
    if path != Path(model):
        loaded.name = model
    return loaded
