"""Which checks a plugin has to pass, and running them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from fairkit import plugins
from fairkit.errors import ParameterError, did_you_mean
from fairkit.support.lazy_dataclass import dataclass
from fairkit_testing import auditor_checks, metric_checks, mitigator_checks, plugin_checks
from fairkit_testing import auditor_checks as model_source_checks
from fairkit_testing import auditor_checks as promotion_checks
from fairkit_testing import auditor_checks as signer_checks
from fairkit_testing import auditor_checks as source_checks
from fairkit_testing import metric_checks as chart_checks
from fairkit_testing import metric_checks as exporter_checks
from fairkit_testing import mitigator_checks as learner_checks
from fairkit_testing import plugin_checks as capability_checks
from fairkit_testing import plugin_checks as pack_checks
from fairkit_testing import plugin_checks as parameter_checks
from fairkit_testing.samples import ContractError

if TYPE_CHECKING:
    from fairkit.plugins.loading import Plugin

__all__ = ["Check", "ContractError", "Outcome", "checks_for", "run_checks"]

EXPECTED = "FAIRKIT_EXPECTED_FAILURES"
"""A plugin's module may name checks that it fails on purpose: FAIRKIT_EXPECTED_FAILURES = {"check": "why"}."""
SETTINGS = "FAIRKIT_CHECK_SETTINGS"
"""A plugin's module may name parameters for the checks: FAIRKIT_CHECK_SETTINGS = {"epsilon": 0.1}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check on one thing that a plugin offers; call it to run it.

    Attributes
    ----------
    name
        The function's name.
    subject
        What it looks at: the plugin's, metric's, auditor's or mitigator's name.
    run
        Raises `ContractError` where the contract is broken.
    reason
        Why it is expected to fail; None where it must pass.
    """

    name: str
    subject: str
    run: Callable[[], None]
    reason: str | None = None

    @property
    def id(self) -> str:
        """The name in reports: ``check_names[my-plugin]``."""
        return f"{self.name}[{self.subject}]"

    def __call__(self) -> None:
        """Run it. A check that is expected to fail, and passes, is an error."""
        if self.reason is None:
            self.run()
            return
        try:
            self.run()
        except Exception:
            return
        raise ContractError(
            f"{self.id} is expected to fail ({self.reason}), but passes: take it off the expected failures"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one check: passed, failed, or failed as expected, and why."""

    check: str
    subject: str
    status: Literal["passed", "failed", "expected failure"]
    message: str = ""


def checks_for(
    plugin: str | Plugin,
    *,
    settings: Mapping[str, Any] | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> list[Check]:
    """Return every check that applies to a plugin.

    Parameters
    ----------
    plugin
        The name of an installed plugin (or of a file named in FAIRKIT_PLUGINS), or a loaded one.
    settings
        Parameters of its auditors and mitigator for the checks: needed ones, or quicker ones. Over
        `FAIRKIT_CHECK_SETTINGS` of its module.
    expected_failures
        Names of checks with the reason why they fail on purpose. Over `FAIRKIT_EXPECTED_FAILURES`.

    Returns
    -------
    list of Check
        In a fixed order.

    Raises
    ------
    PluginError
        The plugin does not load.
    ParameterError
        An expected failure names no check, or has no reason.
    """
    loaded = plugins.load(plugin) if isinstance(plugin, str) else plugin
    chosen = {**getattr(loaded.module, SETTINGS, {}), **(settings or {})}
    expected = {**getattr(loaded.module, EXPECTED, {}), **(expected_failures or {})}
    checks = list(_all_checks(loaded, chosen))
    names = {name for check in checks for name in (check.name, check.id)}
    for name, reason in expected.items():
        if name not in names:
            hint = did_you_mean(name, sorted(names), what="checks")
            raise ParameterError(f"{loaded.found.name}: {name!r} is expected to fail, but is no check. {hint}")
        if not str(reason).strip():
            raise ParameterError(f"{loaded.found.name}: say why {name!r} is expected to fail")
    return [
        Check(
            name=check.name,
            subject=check.subject,
            run=check.run,
            reason=expected.get(check.id, expected.get(check.name)),
        )
        for check in checks
    ]


def run_checks(
    plugin: str | Plugin,
    *,
    settings: Mapping[str, Any] | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> Iterator[Outcome]:
    """Run every check that applies and say what became of each, one after the other; see `checks_for`."""
    loaded = plugins.load(plugin) if isinstance(plugin, str) else plugin
    for check in checks_for(loaded, settings=settings, expected_failures=expected_failures):
        yield _outcome(check, getattr(loaded.module, "__file__", None))


def _outcome(check: Check, file: str | None) -> Outcome:
    try:
        check()
    except Exception as error:
        text = str(error) if isinstance(error, ContractError) else _with_place(error, file)
        return Outcome(check=check.name, subject=check.subject, status="failed", message=text)
    if check.reason is None:
        return Outcome(check=check.name, subject=check.subject, status="passed")
    return Outcome(check=check.name, subject=check.subject, status="expected failure", message=check.reason)


def _with_place(error: Exception, file: str | None) -> str:
    """Return a plugin's error message with the line that raised it."""
    import traceback

    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f" (line {lines[-1]} of {file})" if lines else ""
    return f"{type(error).__name__}: {error}{where}"


def _all_checks(plugin: Plugin, settings: Mapping[str, Any]) -> Iterator[Check]:
    for function in plugin_checks.PLUGIN_CHECKS:
        yield _check(function, plugin.found.name, plugin)
    for kind, classes in (("auditor", plugin.auditors), ("mitigator", plugin.mitigators)):
        for cls in classes:
            for parameters_check in parameter_checks.PARAMETER_CHECKS:
                yield _check(parameters_check, f"{kind} {cls.name}", cls)
    kinds: tuple[tuple[Any, Any, Callable[[Any], Any]], ...] = (
        (plugin.metrics, metric_checks.METRIC_CHECKS, lambda cls: cls),
        (plugin.auditors, auditor_checks.AUDITOR_CHECKS, lambda cls: auditor_checks.Audited(cls, _own(cls, settings))),
        (
            plugin.mitigators,
            (*mitigator_checks.MITIGATOR_CHECKS, *capability_checks.CAPABILITY_CHECKS),
            lambda cls: mitigator_checks.Trained(cls, _own(cls, settings)),
        ),
        (plugin.learners, learner_checks.LEARNER_CHECKS, learner_checks.Taught),
        (plugin.evidence_charts, chart_checks.CHART_CHECKS, lambda cls: cls),
        (plugin.sources, source_checks.SOURCE_CHECKS, lambda cls: cls),
        (plugin.model_sources, model_source_checks.MODEL_SOURCE_CHECKS, lambda cls: cls),
        (plugin.promotion_checks, promotion_checks.PROMOTION_CHECKS, lambda cls: cls),
        (plugin.signers, signer_checks.SIGNER_CHECKS, lambda cls: cls),
        (plugin.exporters, exporter_checks.EXPORTER_CHECKS, lambda cls: cls),
        (plugin.packs, pack_checks.PACK_CHECKS, lambda cls: cls),
    )
    for classes, checks, looked_at in kinds:
        for cls in classes:
            subject = looked_at(cls)
            for check in checks:
                yield _check(check, cls.name, subject)


def _own(cls: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are parameters of the class: a plugin may offer several."""
    from fairkit.parameters import describe_parameters

    names = {parameter.name for parameter in describe_parameters(cls.Parameters)}
    return {key: value for key, value in settings.items() if key.partition(".")[0] in names}


def _check(function: Callable[[Any], None], subject: str, argument: Any) -> Check:
    return Check(name=function.__name__, subject=subject, run=functools.partial(function, argument))
