"""Contract checks for plugins: what fairkit asks of its own plugins, for everybody's.

In a plugin's tests::

    from fairkit_testing import parametrize_with_checks


    @parametrize_with_checks("my-plugin")
    def test_contract(check):
        check()

Without pytest: ``run_checks("my-plugin")``, or ``fairkit plugins check my-plugin`` on the command line. Each check
is a plain function of `fairkit_testing.metric_checks`, `auditor_checks`, `mitigator_checks`, `learner_checks`,
`chart_checks`, `parameter_checks`, `plugin_checks`, `promotion_checks`, `model_source_checks`, `signer_checks`,
`exporter_checks` and `pack_checks`, and can be called by itself.
"""

from __future__ import annotations

from fairkit_testing.contract import Check, ContractError, Outcome, checks_for, run_checks
from fairkit_testing.pytest_support import parametrize_with_checks
from fairkit_testing.samples import Task, sample_data, sample_model

__all__ = [
    "Check",
    "ContractError",
    "Outcome",
    "Task",
    "checks_for",
    "parametrize_with_checks",
    "run_checks",
    "sample_data",
    "sample_model",
]
