"""A page with everything on it: it stays small, every link leads somewhere, and nothing overlaps in print."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairkit
from fairkit_cli.formats import html as report_page

pytest.importorskip("numba", reason="these auditors need numba: pip install 'fairkit[all-inputs,individual]'")

TEXTS, NUMBERS = ["sex", "ethnicity", "employment"], ["age", "income"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> fairkit.Report:
    """An audit by all auditors, over three sensitive columns, of boosted trees."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    from fairkit_datasets.loans import loans_table

    table = loans_table(900, 4).to_pandas()
    data = table[[*TEXTS, *NUMBERS]].astype(dict.fromkeys(NUMBERS, np.float32))
    trees = GradientBoostingClassifier(n_estimators=8, max_depth=2, random_state=0)
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    model = make_pipeline(make_column_transformer((encoder, TEXTS), ("passthrough", NUMBERS)), trees)
    model.fit(data, table["decision"])
    types = [(name, StringTensorType([None, 1])) for name in TEXTS]
    types += [(name, FloatTensorType([None, 1])) for name in NUMBERS]
    path = tmp_path_factory.mktemp("whole") / "trees.onnx"
    opset = {"": 15, "ai.onnx.ml": 3}
    proto = convert_sklearn(model, initial_types=types, target_opset=opset, options={"zipmap": False})
    path.write_bytes(proto.SerializeToString())
    rows = fairkit.load_data(
        table[[*TEXTS, *NUMBERS, "decision"]], label="decision", favorable="approved",
        sensitive=["sex", "ethnicity", "sex+ethnicity"],
    )  # fmt: skip
    return fairkit.audit(
        path, rows, auditors=["group", "subgroups", "restricted-dro", "dif", "consistency", "all-inputs"],
        parameters={
            "restricted-dro": {"epsilon": [0.05, 0.1]}, "dif": {"epsilon": 0.1}, "consistency": {"sensitive": ["sex"]},
            "all-inputs": {"columns": ["sex"], "boxes": 300, "people": 100},
        },
        policy=[fairkit.Rule("demographic_parity_difference", "sex", max=0.001)],
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(report: fairkit.Report) -> str:
    return report_page(report)


@pytest.mark.long
def test_it_is_small_and_every_link_leads_somewhere(page: str, report: fairkit.Report):
    flips = bool(report.find("consistency", "sex").evidence["most_changed"])
    assert len(page.encode()) < 400_000
    places = set(re.findall(r' id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= places
    opened = page[page.index("Each disparity and its groups") : page.index("<h2>Groups of ")]
    assert ('<a href="#most_changed-0">people whose score depends most on sex</a>' in opened) == flips
    assert re.search(r'<a href="#pairs-\d">\d like pairs \(performance_gap \(epsilon 0\.05\)\)</a>', opened)


@pytest.mark.long
def test_all_inputs_are_a_section_of_their_own(page: str, report: fairkit.Report):
    start = page.index("Anybody: all inputs")
    section = page[start : page.index("<h2>", start)]
    flips = report.find("all_inputs_flip", "sex").value
    assert ("there is such an input" in section) == (flips == 1)
    assert ("An input whose answer changes" in section) == (flips == 1)
    single = page[page.index("<h2>Single people</h2>") : start]
    assert "all_inputs" not in single
    assert "Further evidence" not in page


OVERLAPS = """
document.querySelectorAll("details").forEach(one => { one.open = true; });
const boxes = [...document.querySelectorAll("table, svg.chart")].map(one => [one, one.getBoundingClientRect()])
  .filter(([one, box]) => box.width > 1 && box.height > 1);
const found = [];
boxes.forEach(([one, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
  const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  if (x > 2 && y > 2) found.push([one.getAttribute("aria-label"), other.getAttribute("aria-label")]);
}));
const told = document.createElement("pre");
told.id = "told";
told.textContent = JSON.stringify({count: boxes.length, found});
document.body.append(told);
"""


@pytest.mark.long
@pytest.mark.parametrize("width", [688, 711])  # what is left of A4 and of Letter between the margins, in CSS pixels
def test_nothing_overlaps_in_print(page: str, width: int, browse: Callable[..., Any]):
    printed = page.replace("@media print", "@media all").replace("main{max-width:none", f"main{{width:{width}px")
    open_to_scripts = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", printed)
    seen = browse(
        open_to_scripts.replace("</body>", f"<script>{OVERLAPS}</script></body>"), f"--window-size={width},1000"
    )
    told = re.search(r'<pre id="told">(.*?)</pre>', seen.dom, re.DOTALL)
    assert told is not None
    result = json.loads(told[1].replace("&quot;", '"').replace("&amp;", "&"))
    assert result["count"] > 40
    assert result["found"] == []


@pytest.mark.long
def test_axe_finds_no_serious_fault(page: str, faults: Callable[..., list[str]]):
    assert faults(page) == []


CUT = """
addEventListener("load", () => {
  document.querySelectorAll("details").forEach(one => { one.open = true; });
  const cut = [...document.querySelectorAll(".scroll")].filter(one => one.scrollWidth > one.clientWidth + 1);
  const wide = document.documentElement.scrollWidth;
  document.documentElement.dataset.told = JSON.stringify({ wide, cut: cut.map(one => one.getAttribute("aria-label")) });
});
"""


@pytest.mark.long
@pytest.mark.parametrize("width", [390, 400])
def test_the_page_of_a_phone_has_no_cut_column(page: str, browse: Callable[..., Any], tmp_path: Path, width: int):
    open_to_scripts = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    inner = tmp_path / "inner.html"
    inner.write_text(open_to_scripts.replace("</body>", f"<script>{CUT}</script></body>"), encoding="utf-8")
    frame = f'<!doctype html><title>phone</title><iframe src="{inner.as_uri()}" width="{width}" height="800"></iframe>'
    told = "<script>onload = () => { document.title = document.querySelector('iframe').contentDocument"
    told += ".documentElement.dataset.told; };</script>"
    seen = browse(frame + told, "--allow-file-access-from-files")
    found = re.search(r"<title>({.*?})</title>", seen.dom)
    assert found is not None
    result = json.loads(html.unescape(found[1]))
    assert result["wide"] <= width
    assert result["cut"] == []
