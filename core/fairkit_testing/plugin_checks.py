"""Checks on a plugin as a whole: it is light to import, has good names, and says what it is."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import re
import subprocess
import sys
import typing
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from fairkit import plugins
from fairkit.auditors import Auditor
from fairkit.capabilities import metrics_of
from fairkit.charts import EvidenceChart
from fairkit.data.table import Table
from fairkit.errors import ConfigError, FairkitError, PluginError
from fairkit.exporters import Exporter
from fairkit.fitted import Run
from fairkit.learners import Learner
from fairkit.metrics import Mean, Metric, Rate
from fairkit.mitigators import Mitigator
from fairkit.parameters import ParameterInfo, describe_parameters, parse_parameters
from fairkit.plugins.finding import pack_plugins
from fairkit.promotions import PromotionCheck
from fairkit.signers import Signer
from fairkit.sources import DataSource
from fairkit_onnx.read.feeds import RANDOM_INPUT
from fairkit_onnx.write.export import export_bytes
from fairkit_testing.mitigator_checks import PROMISE_ROWS, Trained, unseen_columns
from fairkit_testing.samples import ContractError, Task, only_fairkit_errors, require, sample_data, sample_model

if TYPE_CHECKING:
    from fairkit.capabilities import Capability
    from fairkit.packs import Pack, PackFile
    from fairkit.plugins.loading import Plugin
    from fairkit.results.findings import Finding


HEAVY = tuple(
    """adbc_driver_postgresql deltalake duckdb jax lightgbm matplotlib numba onnx onnxruntime
    pandas polars pyarrow scipy sklearn tensorflow torch xgboost""".split()  # noqa: SIM905 -- a list of names reads as one
)
"""What no plugin imports before it is used."""

SENTENCE = 11
"""Fewer characters than this say nothing."""

_WORDS = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_EDITION = re.compile(_WORDS.pattern + r"(@\d{4}-\d{2}-\d{2})?")
_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_BASES: tuple[type[Any], ...] = (
    Auditor,
    Metric,
    Mean,
    Rate,
    Mitigator,
    Learner,
    EvidenceChart,
    DataSource,
    PromotionCheck,
    Signer,
    Exporter,
)


def check_light_import(plugin: Plugin) -> None:
    """Loading the plugin and asking its hooks imports no heavy library: `fairkit plugins` stays quick."""
    code = (
        f"import sys\nfrom fairkit import plugins\nplugins.load({plugin.found.name!r})\nprint('LOADED', *[name for "
        f"name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    require(result.returncode == 0, f"it does not load in a fresh process: {result.stderr.strip()[-500:]}")
    loaded = result.stdout.rpartition("LOADED")[2].split()
    require(
        not loaded,
        f"importing it imports {', '.join(loaded)}; import heavy libraries inside the functions that use them",
    )


def check_names(plugin: Plugin) -> None:
    """Names are what users can type and nobody else's: words-with-hyphens, and metric_names_like_this."""
    require(
        _WORDS.fullmatch(plugin.found.name),
        f"the plugin's name {plugin.found.name!r} is not lower case words joined by hyphens",
    )
    named: list[Any] = [
        *plugin.auditors,
        *plugin.mitigators,
        *plugin.learners,
        *plugin.sources,
        *plugin.promotion_checks,
        *plugin.signers,
        *plugin.exporters,
    ]
    for cls in plugin.packs:
        require(
            _EDITION.fullmatch(cls.name),
            f"the name {cls.name!r} of {cls.__name__} is not lower case words joined by hyphens, then @2026-01-31 of "
            "a kept edition",
        )
    for cls in named:
        require(
            _WORDS.fullmatch(cls.name),
            f"the name {cls.name!r} of {cls.__name__} is not lower case words joined by hyphens",
        )
    named = [*plugin.metrics, *plugin.evidence_charts]
    for cls in named:
        require(
            _SNAKE.fullmatch(cls.name),
            f"the name {cls.name!r} of {cls.__name__} is not lower case words joined by underscores",
        )
    for classes in plugin.classes.values():
        twice = [name for name, count in Counter(cls.name for cls in classes).items() if count > 1]
        require(not twice, f"two of its classes have the name {twice[0] if twice else ''!r}")
    for installed_plugin in _others(plugin):
        for kind, classes in plugin.classes.items():
            mine = {cls.name for cls in classes}
            theirs = {cls.name for cls in installed_plugin.classes.get(kind, ())}
            require(
                not mine & theirs,
                f"the plugin {installed_plugin.found.name!r} of {installed_plugin.found.distribution} has "
                f"{sorted(mine & theirs)} already; choose another name",
            )


def check_documented(plugin: Plugin) -> None:
    """The module and each class begin with a sentence of their own; mitigators and metrics say more."""
    sentence = (inspect.getdoc(plugin.module) or "").split("\n")[0]
    missing = []
    if len(sentence) < SENTENCE:
        missing.append(f"its module has {_short(sentence)}: `fairkit plugins show` prints the first line")
    for cls in (
        *plugin.metrics,
        *plugin.auditors,
        *plugin.mitigators,
        *plugin.learners,
        *plugin.evidence_charts,
        *plugin.sources,
        *plugin.promotion_checks,
        *plugin.signers,
        *plugin.exporters,
        *plugin.packs,
    ):
        inherited = any(cls.__doc__ == base.__doc__ for base in _BASES)
        first = "" if inherited else (cls.__doc__ or "").strip().split("\n")[0]
        if len(first) < SENTENCE:
            missing.append(f"{cls.__name__} has {_short(first)}: its first line says what it does")
    missing += [
        f"{metric.__name__}.meaning is empty or short: one sentence on what 0, 1 or the ends of the range mean"
        for metric in plugin.metrics
        if len(metric.meaning) < SENTENCE
    ]
    missing += [
        f"{mitigator.__name__}.citation is empty: who published it, where?"
        for mitigator in plugin.mitigators
        if len(mitigator.citation) <= 5
    ]
    require(not missing, "; ".join(missing))


def _short(text: str) -> str:
    return f"too short a docstring ({text!r})" if text else "no docstring"


def _others(plugin: Plugin) -> list[Plugin]:
    """The installed plugins that are another package: two entry points may share one."""
    neighbours = []
    for other in plugins.find():
        if other.name == plugin.found.name:
            continue
        try:
            loaded = plugins.load(other.name)
        except PluginError:
            continue
        if loaded.module is not plugin.module:
            neighbours.append(loaded)
    return neighbours


PLUGIN_CHECKS = (check_light_import, check_names, check_documented)


# Checks on what a method says that it can do about a policy: a search under a policy relies on it.


ROWS, FEW_ROWS = 1_000, 300
CHEAP = 2.5
LIMIT = 0.05


def check_mitigator_capability_parameters(trained: Trained) -> None:
    """Each capability's settings, and each step of its dial, are parameters of the method in their range."""
    for capability in trained.cls.capabilities:
        for settings in capability.tries(LIMIT):
            try:
                trained.cls.with_values({**trained.settings, **settings})
            except FairkitError as error:
                raise ContractError(f"a capability names the parameters {settings}: {error}") from error


def check_mitigator_capabilities(trained: Trained) -> None:
    """What the method says it can meet does not grow; what it says of group and chance is true of its files.

    Of a method that takes many trainings, only the first capability is tried.
    """
    cheap = [capability for capability in trained.cls.capabilities if capability.trainings <= CHEAP]
    for capability in cheap or trained.cls.capabilities[:1]:
        method = Trained(trained.cls, {**trained.settings, **capability.tries(LIMIT)[0]})
        for task in method.tasks[:1]:
            _check(method, capability, task)


def _check(method: Trained, capability: Capability, task: Task) -> None:
    """Train the strictest model for a column that is no feature, and look at its file and at new rows."""
    about = f"{task}: a model for {' and '.join(capability.constraints)} {dict(capability.settings) or ''}"
    table = _table("sex", task, ROWS if capability.trainings <= CHEAP else FEW_ROWS)
    fitted, base = method.fit(table), method.base(task)
    chance = fitted.predict(unseen_columns(task)).decision_probability
    drawn = chance is not None and bool(((chance > 0) & (chance < 1)).any())
    require(capability.randomized or not drawn, f"{about} draws decisions, but its randomized is False")
    content = export_bytes(fitted, table)
    if not capability.reads_group:
        hidden, file = ("sex", content) if base is None else ("race", _for_race(method, task))
        require(hidden not in _inputs(file), f"{about} reads {hidden!r} to decide, but its reads_group is False")
    drawn = chance is None and RANDOM_INPUT in _inputs(content)
    require(capability.randomized or not drawn, f"{about} draws its output, but its randomized is False")
    run = Run(seed=7, threads=1)
    plain = base.content if base else export_bytes(method.make().baseline(table, run), table)
    before, after = (_disparities(file, capability, task) for file in (plain, content))
    for metric, old in before.items():
        new = after.get(metric)
        if new is None or new.interval is None or old.value is None:
            continue
        low, high = new.interval
        require(
            high >= old.value if old.better == "higher" else low <= old.value,
            f"{about}: {metric} is {new.value:.4g} [{low:.4g}, {high:.4g}] on new rows, significantly worse than "
            f"{old.value:.4g} without the method",
        )


def _table(column: str, task: Task, rows: int = ROWS) -> Table:
    """Return sample rows with a sensitive column that is no feature."""
    table = Table.from_dataset(sample_data(task, rows=rows, sensitive=(column,)))
    features = tuple(name for name in table.features if name != column)
    return dataclasses.replace(table, features=features)


def _for_race(method: Trained, task: Task) -> bytes:
    """Repair the sample model, which reads ``sex`` and not ``race``, for the latter."""
    table = _table("race", task)
    return export_bytes(method.fit(table), table)


def _inputs(content: bytes) -> set[str]:
    from fairkit_onnx.file import OnnxModel

    return {entry.name for entry in OnnxModel(content, "the file").inputs}


def _disparities(content: bytes, capability: Capability, task: Task) -> dict[str, Finding]:
    """Return the constrained disparities of an audit by groups."""
    import fairkit
    from fairkit.settings import ModelOptions

    fresh = sample_data(task, rows=PROMISE_ROWS, seed=1, sensitive=("sex",))
    report = fairkit.audit(content, fresh, options=ModelOptions(task=task))
    wanted = {metric for name in capability.constraints for metric in metrics_of(name)}
    return {
        finding.metric: finding
        for finding in report.findings
        if finding.metric in wanted and finding.sensitive == "sex" and finding.better != "none"
    }


CAPABILITY_CHECKS = (check_mitigator_capability_parameters, check_mitigator_capabilities)


# Checks on declared parameters: each is documented, typed, and refuses what it cannot mean.


NONSENSE = "not-a-number-nor-a-choice"


def check_parameters_documented(cls: Any) -> None:
    """`Parameters` is a frozen dataclass of keywords; each field has a type that text can give, and a sentence."""
    declared = cls.Parameters
    require(dataclasses.is_dataclass(declared), f"{cls.__name__}.Parameters is no dataclass; see fairkit.parameter")
    options = getattr(declared, "__dataclass_params__", None)
    require(
        options is not None and options.frozen,
        f"{cls.__name__}.Parameters can be changed; make it @dataclass(frozen=True, slots=True, kw_only=True)",
    )
    for field in dataclasses.fields(declared):
        require(field.kw_only, f"the parameter {field.name} is positional; give the dataclass kw_only=True")
        help_text = str(field.metadata.get("help", ""))
        require(
            len(help_text) > 5,
            f"the parameter {field.name} has no help; declare it with fairkit.parameter(default, help='...')",
        )
    for parameter in describe_parameters(declared):
        require(parameter.type, f"the parameter {parameter.name} has no type that people understand")


def check_parameters_validated(cls: Any) -> None:
    """Defaults are allowed, as text too; unknown names, nonsense and numbers out of range are refused."""
    declared, owner = cls.Parameters, str(cls.name)
    required = {p.name for p in describe_parameters(declared) if p.default is None}
    with only_fairkit_errors("an unknown parameter was given", required=True):
        parse_parameters(declared, {"no-such-parameter": "1"}, owner=owner)
    hints = typing.get_type_hints(declared)
    for field, parameter in zip(dataclasses.fields(declared), describe_parameters(declared), strict=True):
        if parameter.default is not None and not required:
            _default_is_allowed(declared, owner, parameter)
        for value in _refused_values(field, hints[field.name]):
            with only_fairkit_errors(f"{field.name}={value!r} was given", required=True):
                cls(parse_parameters(declared, {field.name: value}, owner=owner))


def _default_is_allowed(declared: Any, owner: str, parameter: ParameterInfo) -> None:
    """What `fairkit plugins show` prints as the default can be typed, and means the default."""
    if "pairs" in parameter.type:
        return
    try:
        typed = parse_parameters(declared, {parameter.name: parameter.default}, owner=owner)
    except FairkitError as error:
        raise ContractError(f"the default of {parameter.name} is refused when it is typed: {error}") from error
    usual = getattr(parse_parameters(declared, {}, owner=owner), parameter.name)
    require(
        getattr(typed, parameter.name) == usual,
        f"{parameter.name}={parameter.default} means {getattr(typed, parameter.name)!r}, not the default {usual!r}",
    )


def _refused_values(field: dataclasses.Field[Any], hint: Any) -> list[Any]:
    """Return values that the declaration rules out."""
    kinds = _kinds(hint)
    refused: list[Any] = []
    if not kinds & {str, Any} and kinds:
        refused.append(NONSENSE)
    if kinds & {int, float}:
        metadata = field.metadata
        step = 1 if int in kinds else 1e-9
        low, high = metadata.get("minimum"), metadata.get("maximum")
        above, below = metadata.get("above"), metadata.get("below")
        refused += [low - step] if low is not None else []
        refused += [high + step] if high is not None else []
        refused += [above] if above is not None else []
        refused += [below] if below is not None else []
    return refused


def _kinds(hint: Any) -> set[Any]:
    """Return the simple types that a declared type is made of; literals count as their own kind."""
    if hint is Any or hint is str or hint in (int, float, bool):
        return {hint}
    if get_origin(hint) is Literal:
        return {"literal"}
    arguments = [argument for argument in get_args(hint) if argument is not Ellipsis]
    return {kind for argument in arguments for kind in _kinds(argument)}


PARAMETER_CHECKS = (check_parameters_documented, check_parameters_validated)


# Checks on packs: their text can be read, is the same each time, and a rendering of it shows every gap.


def check_pack_can_be_read(cls: type[Pack]) -> None:
    """`text` is TOML with the keys of a pack."""
    _read(cls)


def check_pack_is_the_same_each_time(cls: type[Pack]) -> None:
    """`text` gives the same text each time: what was filed can be made again."""
    require(cls.text() == cls.text(), "text gives another text the second time")


def check_pack_states_its_source(cls: type[Pack]) -> None:
    """The source and the day on which it was checked are stated, and that day is not to come."""
    pack = _read(cls)
    require(pack.checked <= datetime.datetime.now(datetime.UTC).date(), f"checked is {pack.checked}, a day to come")
    require(len(pack.notice) > 20, "notice is short: say what the page is not, for example legal advice")


def check_pack_shows_its_gaps(cls: type[Pack]) -> None:
    """Filled without facts, every fact that is required is a gap."""
    import fairkit

    pack = _read(cls)
    report = fairkit.audit(sample_model("binary"), sample_data("binary", rows=200))
    signed = {"sha256": "0" * 64, "audited_at": f"{pack.to_dict()['edition']}T00:00:00Z", "keyids": []}
    made = pack_plugins()[1].render(pack, report, {}, signed, today=pack.checked)
    required = {fact.title for fact in pack.facts if fact.required}
    shown = {fact.title for item in made.items for fact, _ in item.facts}
    require(required <= shown, f"no item asks for the facts {sorted(required - shown)}: name them in an item")
    require(len(made.gaps) >= len(required), f"{len(required)} facts are required and {len(made.gaps)} gaps are shown")


def _read(cls: type[Pack]) -> PackFile:
    try:
        return pack_plugins()[1].read(cls.name, cls.text())
    except ConfigError as error:
        require(False, str(error))
        raise


PACK_CHECKS = (
    check_pack_can_be_read,
    check_pack_is_the_same_each_time,
    check_pack_states_its_source,
    check_pack_shows_its_gaps,
)
