"""Sphinx's configuration of the documentation site; `build.py` puts the sources together and calls Sphinx."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["FAIRKIT_PLUGINS"] = ""

project = "fairkit"
author = "The fairkit developers"
copyright = "The fairkit developers, Apache-2.0"
version = release = installed("fairkit")
html_last_updated_fmt = None

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["examples/*", "gallery/*.ipynb", "gallery/*.py", "gallery/*.json"]
suppress_warnings = [
    "myst.header",  # pages that begin below the first level
    "config.cache",  # the gallery's functions are compared by name
]
default_role = "py:obj"
highlight_language = "python"
pygments_style = "default"

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "attrs_block"]
nb_execution_mode = "force"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_execution_show_tb = True

autodoc_typehints = "none"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": False, "show-inheritance": False}
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 88
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Yields", "returns_style")]

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "image_scrapers": ("pictures.scraper",),
    "reset_modules": ("pictures.reset",),
    "capture_repr": (),
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "nested_sections": False,
    "within_subsection_order": "FileNameSortKey",
    "copyfile_regex": r".*\.rst",
    "thumbnail_size": (480, 320),
}

html_theme = "pydata_sphinx_theme"
html_title = "fairkit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_sphinx = False
html_show_search_summary = False  # it would fetch pages, which needs a server
html_copy_source = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "back_to_top_button": False,
}
html_sidebars = {"index": [], "contents": [], "changelog": []}
