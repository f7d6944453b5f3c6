"""The broken cousins: each is a row with its reason and what fixes it, and no other command minds."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.long

ROLES = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")


@pytest.fixture(scope="module")
def rows(broken):
    result = broken.fairkit("plugins", "list", "--format", "json")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return json.loads(result.stdout)


def reasons(rows, distribution):
    return [row["reason"] for row in rows if row["distribution"] == distribution]


@pytest.mark.parametrize(
    ("distribution", "said"),
    [
        (
            "fairkit-import-error",
            "the plugin 'broken-import' of fairkit-import-error 0.5 does not load (ImportError: cannot import "
            "name 'NoSuchName' from 'fairkit.metrics'",
        ),
        ("fairkit-wrong-hook-name", "a hook is not as specified: unknown hook 'fairkit_metric'"),
        ("fairkit-wrong-signature", "hookimpl definition: fairkit_metrics(config) Argument(s) {'config'}"),
        (
            "fairkit-duplicate-one",
            "two plugins have the name 'broken-twin': fairkit-duplicate-one 0.5 and fairkit-duplicate-two 0.5; "
            "uninstall one of them: pip uninstall fairkit-duplicate-two",
        ),
        ("fairkit-duplicate-built-in", "two plugins have the name 'group': fairkit 0.1.0 and"),
        (
            "fairkit-missing-dependency",
            "(it needs no_such_library, which is not installed); fix it with: pip install no_such_library",
        ),
        (
            "fairkit-wrong-interface",
            "(it is written for version 99 of the plugin interface, this fairkit has 1); fix it with: "
            "pip install --upgrade fairkit",
        ),
        ("fairkit-no-class", "but hooks return lists of Metric classes"),
    ],
)
def test_each_is_a_row_with_its_reason(rows, distribution, said):
    (reason,) = reasons(rows, distribution)
    assert said in reason
    assert "\n" not in reason
    assert "pip " in reason


def test_the_twin_is_told_too(rows):
    assert reasons(rows, "fairkit-duplicate-two") == reasons(rows, "fairkit-duplicate-one")


def test_the_good_plugin_and_ours_load_beside_them(rows):
    assert reasons(rows, "fairkit-lots") == [None]
    assert set(reasons(rows, "fairkit")) == {None}


def test_the_table_shows_the_reasons(broken):
    result = broken.fairkit("plugins")
    assert result.returncode == 0
    assert "Traceback" not in result.stdout + result.stderr
    # whole, on a line of its own: to be copied
    (line,) = [line for line in result.stdout.splitlines() if "pip install no_such_library" in line]
    assert line.startswith("the plugin 'broken-dependency' of fairkit-missing-dependency 0.5 does not load")
    row = next(line for line in result.stdout.splitlines() if line.startswith("broken-dependency"))
    assert row.split()[-1] == "no"


def test_show_and_check_of_a_broken_one_say_why_and_exit_with_2(broken):
    for command in ("show", "check"):
        result = broken.fairkit("plugins", command, "broken-dependency")
        assert result.returncode == 2
        assert result.stdout == ""
        assert result.stderr.startswith("fairkit: the plugin 'broken-dependency'")
        assert len(result.stderr.splitlines()) == 1


def test_an_audit_goes_on_and_tells(broken, loans):
    model, data = loans
    result = broken.fairkit("audit", model, "--data", data, *ROLES, "--format", "json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    told = report["environment"]["plugins_not_loaded"]
    for distribution in ("fairkit-import-error", "fairkit-missing-dependency", "fairkit-wrong-interface"):
        assert sum(distribution in sentence for sentence in told) == 1
    assert [sentence for sentence in told if "'accuracy'" in sentence] == [
        "the metric 'accuracy' of the plugin 'broken-metric-name' (fairkit-duplicate-metric) is left out: "
        "'group' (fairkit) has one of that name"
    ]
    (accuracy,) = [finding for finding in report["findings"] if finding["metric"] == "accuracy"]
    assert 0.4 < accuracy["value"] < 1.0
    fallen = [finding for finding in report["findings"] if finding["metric"].startswith("falls")]
    assert fallen
    assert all(finding["value"] is None for finding in fallen)
    assert "the metric fell" in " ".join(fallen[0]["notes"])


def test_the_terminal_tells_of_a_metric_that_failed(broken, loans):
    model, data = loans
    result = broken.fairkit("audit", model, "--data", data, *ROLES)
    assert result.returncode == 0, result.stderr
    notes = " ".join(result.stdout.partition("\nNotes\n")[2].split())
    assert notes.count("The metric falls of fairkit_raises_in_the_middle failed") == 1
    assert "ZeroDivisionError: the metric fell" in notes


def test_an_auditor_that_raises_is_named_and_ends_its_own_audit_only(broken, loans):
    model, data = loans
    result = broken.fairkit("audit", model, "--data", data, *ROLES, "--auditor", "broken-middle")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == (
        "fairkit: the plugin 'broken-middle' of fairkit-raises-in-the-middle 0.5 failed while the auditor "
        "'broken-middle' measured a batch (ZeroDivisionError: the auditor fell); this is for its author to fix\n"
    )


def test_a_method_that_raises_is_named_and_writes_nothing(broken, loans, tmp_path):
    _, data = loans
    out = tmp_path / "fair.onnx"
    command = ["mitigate", "--plugin", "broken-middle", "--data", data, *ROLES, "--output", out]
    result = broken.fairkit(*command, cwd=tmp_path)
    assert result.returncode == 2
    assert "'broken-middle' trained its model (ZeroDivisionError: the method fell)" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_the_checks_find_what_raises_and_what_clashes(broken):
    fallen = broken.fairkit("plugins", "check", "broken-middle")
    assert fallen.returncode == 1
    assert "check_metric_merges [falls]: FAILED: ZeroDivisionError: the metric fell" in fallen.stdout
    clash = broken.fairkit("plugins", "check", "broken-metric-name")
    assert clash.returncode == 1
    assert "the plugin 'group' of fairkit has ['accuracy'] already" in clash.stdout
