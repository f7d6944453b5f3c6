"""What an audit was told, in a form that repeats it."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any, Self

from fairkit.errors import FairkitError, did_you_mean
from fairkit.settings import AuditSettings, ModelOptions, declared
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_registry.errors import CertificateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.progress import Progress
    from fairkit.results.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedSettings(AuditSettings):
    """The settings of an audit with the roles of the columns and where the model answers: what a certificate keeps."""

    data: Mapping[str, Any]
    endpoint: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_audit(
        cls, settings: AuditSettings, data: Mapping[str, Any], endpoint: Mapping[str, Any] | None = None
    ) -> Self:
        """Return the settings of an audit with the roles of the table, and where the model answers."""
        plain = {each.name: getattr(settings, each.name) for each in dataclasses.fields(AuditSettings)}
        return cls(data=data, endpoint=endpoint or {}, **plain)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, as it stands in a certificate."""
        record = {"data": dict(self.data), **AuditSettings.to_dict(self)}
        return record | ({"endpoint": dict(self.endpoint)} if self.endpoint else {})

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        from fairkit.data.roles import Roles

        names = {"model" if each.name == "options" else each.name for each in dataclasses.fields(cls)}
        odd = (set(record) ^ names) - {"endpoint", "copies"}
        for part, kind in (("data", Roles), ("model", ModelOptions)):
            odd |= set(record.get(part, ())) - ({each.name for each in dataclasses.fields(kind)} - {"joined"})
        if odd:
            raise CertificateError(
                f"the certificate's settings are not those of this version of fairkit: {', '.join(sorted(odd))}"
            )
        _check_names(record.get("data", {}))
        try:
            return cls(**cls.arguments_of(record))
        except (FairkitError, KeyError, TypeError, AttributeError) as error:
            raise CertificateError(f"the settings of the audit cannot be read: {error}") from None

    def open_data(self, data: str | Path | Any, join: str | Path | Any = None) -> Dataset:
        """Return a table with the roles that the audit gave it, and the columns of the other table where it had one."""
        from fairkit.data.loading import load_data

        roles = dict(self.data)
        link = roles.pop("join", None)
        if (link is None) != (join is None):
            raise CertificateError(
                "the audit had no other table: leave `join` out"
                if link is None
                else f"the audit took columns of another table by {', '.join(link['on'])}: name that table with `join`"
            )
        if link is None:
            return load_data(data, **roles)
        dataset = load_data(data, **roles, join=join, on=link["on"])
        found = dataset.roles.join
        if found is None or found.sha256 != link["sha256"]:
            raise CertificateError(
                f"the joined table is not that of the audit, which names the content {link['sha256'][:16]}..."
            )
        return dataset

    def answering(self) -> Any:
        """Return the model behind the endpoint."""
        from fairkit.plugins import model_source

        record = {key: self.endpoint.get(key) for key in ("url", "model", "version")}
        if not all(value is None or isinstance(value, str) for value in record.values()):
            raise CertificateError("the certificate's endpoint has no address and name that are text")
        return model_source("endpoint").open(record)

    def run(
        self,
        model: Any,
        dataset: Dataset,
        *,
        progress: Progress | None = None,
        engine: Engine | str | None = None,
        scheduler: str | None = None,
        signed: Report | None = None,
    ) -> Report:
        """Audit a model (a path, or an `OnnxModel`; None: the predictions in the table, or the endpoint) so.

        Where a `signed` report is given, auditors may confirm its evidence instead of searching again.
        """
        from fairkit.auditing.drawing import redrawn
        from fairkit.auditing.run import audit
        from fairkit.progress import no_progress

        subject = self.answering() if model is None and self.endpoint else model
        return audit(
            subject,
            redrawn(dataset, subject),
            settings=self,
            progress=progress or no_progress,
            engine=engine,
            scheduler=scheduler,
            signed=signed,
        )


def _check_names(data: Any) -> None:
    """Refuse roles that name columns in another form than text and lists of text: anybody can write settings."""
    if not isinstance(data, dict):
        raise CertificateError("the settings of the audit name no roles of columns")
    for key in ("sensitive", "features", "drop", "reference", "within", "sensitive_probability"):
        value = data.get(key)
        listed = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        if key in data and not (listed or (value is None and key != "sensitive")):
            raise CertificateError(f"the settings of the audit have {key} = {str(value)[:80]!r}: no list of names")
    for key in ("label", "weights", "cluster", "query", "missing"):
        if not isinstance(data.get(key), str | None):
            raise CertificateError(f"the settings of the audit have {key} = {str(data[key])[:80]!r}: no text")
    if not isinstance(data.get("counts_from", 0), int) or isinstance(data.get("counts_from"), bool):
        raise CertificateError(
            f"the settings of the audit have counts_from = {str(data['counts_from'])[:80]!r}: no number of rows"
        )


# Settings of an audit under their names in `fairkit.toml`: which differ from the defaults, or from a pin.


CHOSEN = ("data.label", "data.favorable", "data.sensitive")
"""Settings without a default: somebody has to say what they are."""

_UNORDERED = frozenset({"data.sensitive", "data.drop", "audit.auditors"})
LISTS = frozenset({"data.sensitive", "data.features", "data.drop", "audit.auditors"})
"""Settings that hold several names."""

_IN_DATA = frozenset({"path", "train", "test"})
"""Keys of ``[data]`` that say where a table is, not how it is read."""

_AUDIT = {each.key: each.name for each in declared() if each.table == "audit" and each.name != "task"}
"""By the name of a pin, the field of `AuditSettings`."""


def named(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a certificate by name: ``data.missing``, ``model.threshold``, ``audit.group.loss``."""
    settings = {f"data.{key}": value for key, value in record.get("data", {}).items()}
    settings |= {f"model.{key}": value for key, value in record.get("model", {}).items()}
    stated = {key: record.get(name) for key, name in _AUDIT.items()}
    settings |= {f"audit.{key}": value for key, value in stated.items() if value is not None}
    for auditor, values in record.get("parameters", {}).items():
        settings |= {f"audit.{auditor}.{key}": value for key, value in values.items()}
    return settings


def default(name: str) -> Any:
    """Return the default of a setting; None for one that is off, or unknown, by default."""
    from fairkit.data.roles import Roles

    table, _, key = name.partition(".")
    if table == "data":
        return Roles().to_dict().get(key)
    if table == "model":
        return None
    if "." in key:
        return _parameter_default(*key.rsplit(".", 1))
    value = getattr(AuditSettings(), _AUDIT.get(key, ""), None)
    return list(value) if isinstance(value, tuple) else value


@functools.cache
def _parameter_default(auditor: str, parameter: str) -> Any:
    """Return the default of an auditor's parameter; None where the auditor is not installed."""
    from fairkit import plugins

    if auditor not in {each.name for each in plugins.find()}:
        return None
    try:
        offered = plugins.load(auditor).auditors
    except FairkitError:
        return None
    for cls in offered:
        for each in dataclasses.fields(cls.Parameters) if cls.name == auditor else ():
            if each.name == parameter and each.default is not dataclasses.MISSING:
                return list(each.default) if isinstance(each.default, tuple) else each.default
    return None


def same(name: str, one: Any, other: Any) -> bool:
    """Tell whether two values of a setting mean the same, as text or as number, in any order of columns."""
    if name in _UNORDERED:
        return _texts(one) == _texts(other)
    return _same(one, other)


def _same(left: Any, right: Any) -> bool:
    from fairkit.data.roles import same_value

    if left is None or right is None:
        return left is right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, list | tuple | dict) or isinstance(right, list | tuple | dict):
        return bool(left == right)
    return same_value(left, right)


def _texts(value: Any) -> set[str]:
    return set() if value is None else {value} if isinstance(value, str) else {str(item) for item in value}


def unusual(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not the default, by name; bins of a sensitive column are among them.

    Label, favorable value and sensitive columns have no default, so they are not in the result.
    """
    settings = named(record)
    odd = {
        name: value for name, value in settings.items() if name not in CHOSEN and not same(name, value, default(name))
    }
    binned = [text for text in settings.get("data.sensitive") or () if _bins(text)]
    return odd | ({"data.sensitive": binned} if binned else {})


def _bins(text: str) -> bool:
    """Tell whether a sensitive column's text ends in bin edges: ``age:25:60``, and not a column ``a:b``."""
    return any(_number(part.rpartition(":")[2]) for part in str(text).split("+") if ":" in part)


def _number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def deviations(record: Mapping[str, Any], pins: Mapping[str, Any]) -> Iterator[str]:
    """Say in sentences which settings are neither pinned as they are nor the default where nothing is pinned."""
    names = named(record)
    for name, wanted in sorted(pins.items()):
        value = names.get(name, None if name in CHOSEN else default(name))
        least = name == "audit.confidence" and isinstance(value, int | float) and value >= wanted
        if not least and not same(name, value, wanted):
            yield f"{name} is {shown(value)}, and the alias pins {shown(wanted)}"
    for name, value in sorted(unusual(record).items()):
        if name in pins or name == "audit.confidence":  # the alias has a least confidence of its own
            continue
        usual = "without bins" if name in CHOSEN else shown(default(name))
        yield f"{name} is {shown(value)}, and the alias does not pin it: the default is {usual}"


def shown(value: Any) -> str:
    """Write a setting's value for people."""
    import json

    return "not set" if value is None else json.dumps(value, ensure_ascii=False, default=list)


def lines(record: Mapping[str, Any]) -> list[str]:
    """Write the settings that are not the default, one a line: ``model.threshold = 0.1``."""
    return [f"{name} = {shown(value)}" for name, value in sorted(unusual(record).items())]


def check_names(pins: Iterable[str], where: str) -> None:
    """Refuse names of settings that no audit has."""
    from fairkit.data.roles import Roles

    settings = {f"data.{each.name}" for each in dataclasses.fields(Roles)}
    settings |= {f"model.{each.name}" for each in dataclasses.fields(ModelOptions)}
    settings |= {f"audit.{key}" for key in _AUDIT}
    for name in pins:
        of_auditor = name.startswith("audit.") and name.count(".") > 1
        if name not in settings and not of_auditor:
            hint = did_you_mean(name, settings, what="settings")
            raise CertificateError(f"{where}: there is no setting {name!r} of an audit. {hint}")


def of_tables(tables: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the settings that tables in the form of `fairkit.toml` name: [data] (without files), [model], [audit]."""
    odd = set(tables) - {"data", "model", "audit"}
    if odd:
        raise CertificateError(
            f"{where}: {', '.join(sorted(odd))} is no setting of an audit; what can be pinned stands in [data], "
            "[model], [audit] and [audit.NAME], as in fairkit.toml"
        )
    settings: dict[str, Any] = {}
    for table, values in tables.items():
        if not isinstance(values, dict):
            raise CertificateError(f"{where}: [{table}] is a table; write its keys below that heading")
        for key, value in values.items():
            name = f"{table}.{key}"
            if table == "audit" and isinstance(value, dict):
                settings |= {f"{name}.{inner}": item for inner, item in value.items()}
            elif not (table == "data" and key in _IN_DATA):
                settings[name] = [value] if name in LISTS and isinstance(value, str) else value
    check_names(settings, where)
    if not settings:
        raise CertificateError(f"{where} names no setting, so there is nothing to pin")
    return settings
