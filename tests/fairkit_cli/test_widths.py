"""Every screen at 60, 80 and 140 columns: no cell is cut, and no line is longer than the terminal."""

from __future__ import annotations

import re
import shutil
from functools import partial
from os import terminal_size

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from tests.commands import checked, invoke
from tests.terminal import assert_readable, typed

import fairkit
from fairkit_cli.terminal.plain import GAP, fitted, to_text

WIDTHS = (60, 80, 140)
WORD = st.text("abcdefgh_+& -", min_size=1, max_size=34).filter(str.strip)
NUMBER = st.from_regex(r"[0-9]\.[0-9]{1,4}", fullmatch=True)


@pytest.mark.long
@given(
    st.lists(st.tuples(WORD, WORD, NUMBER, NUMBER), min_size=1, max_size=5),
    st.tuples(WORD, WORD, WORD, WORD),
    st.sampled_from(WIDTHS),
)
def test_all_of_every_cell_is_there(rows, header, width):
    grid = Table(box=None, pad_edge=False)
    for place, name in enumerate(header):
        grid.add_column(name, justify="right" if place > 1 else "left")
    grid.add_column("0·····1", no_wrap=True)
    for row in rows:
        grid.add_row(*row, "├──●──┤")
    table, needed = fitted(grid, width)
    widths = [
        column.width or max(len(str(cell)) for cell in [column.header, *column._cells]) for column in table.columns
    ]
    text = to_text([table], terminal=False)
    lines = [line.ljust(sum(widths) + GAP * len(widths)) for line in text.splitlines()]
    assert max(map(len, text.splitlines())) <= needed
    start = 0
    for place, size in enumerate(widths):
        seen = "".join(line[start : start + size] for line in lines)
        start += size + GAP
        if place < 4:
            wanted = "".join([header[place], *(row[place] for row in rows)])
            assert re.sub(r"\s", "", seen) == re.sub(r"\s", "", wanted)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("widths")
    rng = np.random.default_rng(0)
    rows = 900
    score = rng.random(rows)
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups = ["African-American, not Hispanic", "American Indian and Alaska Native", "white"]
    table = {
        "race": rng.choice(groups, rows),
        "sex": rng.choice(["female", "male"], rows),
        "repaid": (rng.random(rows) < score).astype(int),
        "first": (score > 0.5).astype(int),
        "second": (score + 0.2 * rng.normal(size=rows) > 0.55).astype(int),
        "p": score,
    }
    pq.write_table(pa.table(table), folder / "d.parquet")
    return folder, groups


RULE = fairkit.Rule.parse("demographic_parity_difference:sex=0.3", "max")


@pytest.fixture(scope="module")
def made(files):
    """A table of loans, a watch with decisions, and a registry, in the folder of the tables."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tests.exports import network

    folder, _ = files
    rng = np.random.default_rng(1)
    sex, age = rng.choice(["female", "male"], 700), rng.normal(40, 9, 700)
    income = rng.normal(2, 1, 700) + (sex == "male")
    paid = (income + rng.normal(size=700) > 2).astype(int)
    table = {"sex": sex, "age_in_years": age, "income_before_tax": income, "paid": paid}
    pq.write_table(pa.table(table), folder / "loans.parquet")
    with fairkit.Watch.create(folder / "w", [RULE], decision="paid", favorable_decision=1, sensitive=["sex"]) as watch:
        watch.add(table, day="2026-02-01")
    (folder / "model.onnx").write_bytes(network().SerializeToString())
    name, registry = "a-model-with-a-long-name", ["--registry", str(folder / "registry")]
    checked("registry", "add", name, folder / "model.onnx", *registry)
    return folder


def quick(folder):
    """Yield the screens that take no training."""
    roles = ["--data", str(folder / "d.parquet"), "--label", "repaid", "--favorable", "1"]
    sensitive = ["--sensitive", "sex,race,sex+race"]
    first = ["--predictions", "decision=first,score=p"]
    limit = ["--max", "demographic_parity_difference:sex+race=0.05"]
    registry = ["--registry", str(folder / "registry")]
    yield "audit", ["audit", *first, *roles, *sensitive, *limit]
    yield "compare", ["compare", *roles, *sensitive, *first, "--predictions", "decision=second", *limit]
    rules = ["--max", "demographic_parity_difference:sex=0.05", "--groups", "female=0.45,male=0.55"]
    yield "plan", ["plan", *rules]
    yield "watch", ["watch", "show", str(folder / "w")]
    yield "registry list", ["registry", "list", *registry]
    yield "registry show --log", ["registry", "show", "--log", *registry]
    yield "packs", ["packs"]
    yield "plugins", ["plugins", "list"]
    yield "a plugin", ["plugins", "show", "subgroups"]


def trained(folder):
    """Yield what renders the screens of models: of other auditors, of a repair, of a frontier."""
    from fairkit_cli.formats import screen as comparison
    from fairkit_cli.formats import screen as frontier_text
    from fairkit_cli.formats import screen as table
    from fairkit_cli.pages.mitigation import brief_page
    from fairkit_cli.render.text import text_page
    from fairkit_repair.frontiers.training import Sweep

    data = fairkit.load_data(str(folder / "loans.parquet"), label="paid", favorable=1, sensitive="sex")
    options = {"learner": "logistic", "threads": 1}
    searched = fairkit.repair(data, [RULE], methods=["threshold-optimizer"], anyway=True, **options)
    plain = fairkit.mitigate("reweigh", data, **options)
    fronts = fairkit.frontier([Sweep(plugin="reweigh", vary={"strength": [0.0, 1.0]})], data, **options)
    for auditors in (["consistency", "dif"], ["all-inputs"], ["subgroups"], ["why"]):
        parameters = {"all-inputs": {"seconds": 1}} if auditors == ["all-inputs"] else {}
        report = fairkit.audit(plain.onnx, data, auditors=["group", *auditors], parameters=parameters)
        yield "+".join(auditors), partial(table, report, terminal=False)
    strata = fairkit.load_data(
        str(folder / "d.parquet"), label="repaid", favorable=1, sensitive="sex", within="race",
        reference="sex=male",
    )  # fmt: skip
    report = fairkit.audit(fairkit.PredictedColumns(decision="first", score="p"), strata)
    yield "conditions", partial(table, report, terminal=False)
    yield "mitigate", partial(text_page, brief_page(searched), terminal=False)
    yield "mitigate --all", partial(comparison, searched, terminal=False)
    yield "mitigate --plugin", partial(text_page, brief_page(plain), terminal=False)
    yield "frontier", partial(frontier_text, fronts, terminal=False)


def _check(screens, groups, monkeypatch):
    for name, screen in screens:
        found: dict[int, str] = {}
        for width in WIDTHS:
            monkeypatch.setenv("COLUMNS", str(width))
            if callable(screen):
                text = screen()
            else:
                result = invoke(*screen)
                assert result.exit_code in (0, 1, 3), (name, result.output, result.exception)
                text = result.stdout
            assert "…" not in text, (name, width)
            if width >= 80:
                longest = max((line for line in text.splitlines() if "https://" not in line), key=len)
                assert len(longest) <= width, (name, width, longest)
            found[width] = re.sub(r"\b\d+(\.\d+)? s\b", "", text)  # how long it took differs
        numbers = {width: sorted(re.findall(r"\d\.\d+", text)) for width, text in found.items()}
        bars = re.findall(r"^metric.*\b(\d+\.\d+)$", found[140], re.MULTILINE)
        for width in (60, 80):
            missing = [one for one in dict.fromkeys(numbers[140]) if one not in numbers[width] and one not in bars]
            assert not missing, (name, width, missing)
        if name == "audit":
            for text in found.values():
                for group in groups:
                    assert all(word in text for word in re.split(r"[\s-]+", group))


@pytest.mark.long
def test_every_screen_fits_its_width(files, made, monkeypatch):
    _check(quick(made), files[1], monkeypatch)


@pytest.mark.long
def test_every_screen_of_models(files, made, monkeypatch):
    _check(trained(made), files[1], monkeypatch)


def test_a_terminal_is_as_wide_as_it_is_and_a_pipe_gets_whole_lines(files, monkeypatch):
    """A terminal's width counts; a pipe gets whole lines unless COLUMNS says how wide it is."""
    folder, groups = files
    data = fairkit.load_data(
        str(folder / "d.parquet"), label="repaid", favorable=1, sensitive=["sex", "race", "sex+race"]
    )
    report = fairkit.audit(fairkit.PredictedColumns(decision="first", score="p"), data)
    from fairkit_cli.formats import screen as table

    monkeypatch.delenv("COLUMNS", raising=False)
    pipe = table(report, terminal=False)
    assert "├" in pipe
    assert all(group in pipe for group in groups)  # whole, on one line
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: terminal_size((80, 24)))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", table(report, terminal=True))
    assert max(map(len, shown.splitlines())) <= 80
    assert "├" not in shown


# Commands in a real terminal of 80 columns: nothing is asked, nothing is cut, no codes are left on the screen.

ROLES = "--label decision --favorable approved --sensitive sex"
COMMANDS = {
    "fairkit audit plain.onnx --data test.parquet": 0,
    "fairkit audit plain.onnx --data test.parquet --max demographic_parity_difference:sex=0.01": 1,
    "fairkit why plain.onnx --data test.parquet": 0,
    "fairkit compare plain.onnx fair.onnx --data test.parquet": 0,
    f"fairkit data test.parquet {ROLES}": 0,
    "fairkit plan --max demographic_parity_difference:sex=0.1 --groups female=0.5,male=0.5": 0,
    "fairkit registry list": 0,
    "fairkit registry list loans": 0,
    "fairkit registry alias": 0,
    "fairkit registry show loans@1": 0,
    "fairkit plugins": 0,
    "fairkit packs": None,
    "fairkit audit nowhere.onnx --data test.parquet": 2,
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The demo's folder, made in a terminal in which nobody answers."""
    folder = tmp_path_factory.mktemp("terminal")
    shown, code = typed("fairkit demo --keep kept", folder)
    assert code == 0, shown
    said = " ".join(shown.split())
    assert "The demo's key is written without a passphrase, so that nothing is asked" in said, said
    assert "$ fairkit key new auditor.key --no-passphrase" in said
    assert "exit code 2" not in said
    return folder / "kept"


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_the_screen_has_no_codes_and_no_line_that_is_too_long(kept, command):
    shown, code = typed(command, kept)
    assert code != 70, shown
    assert COMMANDS[command] in (None, code), shown
    assert_readable(shown)
