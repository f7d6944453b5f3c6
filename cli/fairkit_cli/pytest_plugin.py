"""The fixture `fairkit_audit`: a policy on a model as a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairkit.results.report import Report


_TEXTS = ("label", "favorable", "weights", "missing")
_LISTS = ("sensitive", "features", "drop")


@dataclass(frozen=True, slots=True)
class Audited:
    """An audit in a test."""

    report: Report  # what was found

    def assert_policy(self, *, undecided: bool = False) -> None:
        """Fail the test unless every rule of the policy passes."""
        __tracebackhide__ = True
        from fairkit_cli.formats import screen

        if self.report.verdict is None:
            raise AssertionError(
                "there is no policy to hold the model to: add [[policy]] rules to fairkit.toml, or give policy=[...]"
            )
        passing = ("pass", "inconclusive") if undecided else ("pass",)
        if self.report.verdict not in passing:
            raise AssertionError(f"\n{screen(self.report, terminal=False)}")


@pytest.fixture
def fairkit_audit(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[..., Audited]:
    """Audit a model as `fairkit audit` would, with the settings of `fairkit.toml`.

    ``fairkit_audit("model.onnx").assert_policy()``: paths start from pytest's root folder, and so does the search for
    fairkit.toml. Roles as `fairkit.load_data` has them (``label``, ``favorable``, ``sensitive``, ...) and arguments of
    `fairkit.audit` win over it. ``fairkit_audit(estimator, X, y, sensitive_features=sex, policy=[...])`` is
    `fairkit.audit`. The verdict and the rules become properties of the test in JUnit files.
    """
    root = Path(request.config.rootpath)

    def run(model: Any, data: Any = None, y: Any = None, **options: Any) -> Audited:
        files = isinstance(model, str | Path) and (data is None or isinstance(data, str | Path)) and y is None
        if files:
            report = _audit_files(root, model, data, options)
        else:
            from fairkit.auditing.run import audit

            report = audit(model, data, y, **options)
        record_property("fairkit_verdict", report.verdict or "none")
        for rule in report.policy:
            record_property(f"fairkit_rule_{rule.metric}", f"{rule.verdict}: {rule.reason}")
        return Audited(report)

    return run


def _audit_files(root: Path, model: str | Path, data: str | Path | None, options: dict[str, Any]) -> Report:
    """Audit a file on a file: what is given wins over fairkit.toml, which wins over the model's metadata."""
    from fairkit.auditing.run import audit
    from fairkit_cli import options as opt
    from fairkit_cli.config import find_config, load_config
    from fairkit_cli.packs import chosen

    config = load_config(find_config(root))
    here = root / model
    subject = chosen(str(here if here.is_file() else model), None, config)
    named = {name: options.pop(name) for name in _TEXTS if name in options}
    named |= {name: opt.listed(options.pop(name)) for name in _LISTS if name in options}
    typed = opt.DataOptions(data=None if data is None else str(root / data), **named)
    dataset = subject.dataset(typed, config, opt.ConditionOptions())
    settings = opt.audit_settings(opt.AuditOptions(), config)
    return audit(subject.model, dataset, settings=settings, **options)
