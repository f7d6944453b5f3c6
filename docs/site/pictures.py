"""Pictures of the gallery: what an example calls ``chart``, for light and for dark pages."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import vl_convert

VEGA_LITE = "6.4"
_PLAIN = {"background": None, "font": "Arial"}
_seen: dict[str, Any] = {}


def scraper(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any], **_: Any) -> str:
    """Save the block's chart, if it made a new one, and return what shows it."""
    chart = block_vars["example_globals"].get("chart")
    if chart is None or _seen.get("chart") is chart:
        return ""
    _seen["chart"] = chart
    spec = chart.to_dict()
    path = Path(next(block_vars["image_path_iterator"]))
    path.write_bytes(vl_convert.vegalite_to_png({**spec, "background": "white"}, vl_version=VEGA_LITE, scale=2))
    spec["config"] = {**spec.get("config", {}), **_PLAIN}
    told = ast.get_docstring(ast.parse(Path(block_vars["src_file"]).read_text("utf-8"))) or "A chart"
    shown = []
    for theme in ("light", "dark"):
        file = path.with_name(f"{path.stem}_{theme}.svg")
        svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, theme="dark" if theme == "dark" else None)
        file.write_text(svg.replace('fill="#333"', 'fill="none"'), encoding="utf-8")
        source = os.path.relpath(file, gallery_conf["src_dir"])
        shown += [f".. image:: /{source}", f"   :class: only-{theme} chart", f"   :alt: {told.splitlines()[0]}", ""]
    return "\n".join(shown)


def reset(gallery_conf: dict[str, Any], fname: str) -> None:
    """Forget the chart of the example before."""
    _seen.clear()
