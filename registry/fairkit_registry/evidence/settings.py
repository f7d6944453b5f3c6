"""What an audit was told, in a form that repeats it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from fairkit.errors import FairkitError
from fairkit.settings import AuditSettings, ModelOptions
from fairkit_registry.errors import CertificateError

if TYPE_CHECKING:
    from collections.abc import Mapping
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

        known = {"model" if each.name == "options" else each.name for each in dataclasses.fields(cls)}
        odd = (set(record) ^ known) - {"endpoint", "copies"}
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

        told = {key: self.endpoint.get(key) for key in ("url", "model", "version")}
        if not all(value is None or isinstance(value, str) for value in told.values()):
            raise CertificateError("the certificate's endpoint has no address and name that are text")
        return model_source("endpoint").open(told)

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
        listed = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
        if key in data and not (listed or (value is None and key != "sensitive")):
            raise CertificateError(f"the settings of the audit have {key} = {str(value)[:80]!r}: no list of names")
    for key in ("label", "weights", "cluster", "query", "missing"):
        if not isinstance(data.get(key), str | None):
            raise CertificateError(f"the settings of the audit have {key} = {str(data[key])[:80]!r}: no text")
    if not isinstance(data.get("counts_from", 0), int) or isinstance(data.get("counts_from"), bool):
        raise CertificateError(
            f"the settings of the audit have counts_from = {str(data['counts_from'])[:80]!r}: no number of rows"
        )
