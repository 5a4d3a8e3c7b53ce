# SPDX-License-Identifier: Apache-2.0
"""The site of the documentation, from the pages of the repository as they are: tools/docs.sh builds it."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

project = "libaccel"
author = "the libaccel contributors"
copyright = author
release = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
version = release

extensions = ["myst_parser", "sphinx_design", "sphinx_copybutton", "repository_pages", "search_text"]
root_doc = "docs/index"
include_patterns = ["docs/**", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "bindings/*/README.md", "bindings/*/*/README.md", "examples/README.md",
                    "examples/python/README.md", "bench/*.md", "api/coverage.md"]
exclude_patterns = ["build", "subprojects", "tests", "src", "tools", "include", "packaging", ".*", "docs/site", "docs/requirements.txt",
                    "bindings/*/*/[a-z]*"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]  # a fragment of a program is not always a whole one
highlight_language = "none"
pygments_style = "friendly"
pygments_dark_style = "monokai"

html_theme = "furo"
html_title = f"libaccel {release}"
html_static_path = [str(HERE / "static")]
html_extra_path = [str(HERE / "extra")]
html_css_files = ["accel.css"]
html_js_files = ["tables.js"]
html_logo = str(HERE / "static/logo.svg")
html_favicon = html_logo
# Pages link their source where `tools/docs.sh --repository URL` names the repository.
html_theme_options = {"source_branch": "main", "source_directory": "", "top_of_page_buttons": ["view", "edit"]}
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_search_summary = False  # it is fetched, which a browser refuses to pages that no server sends: search_text.py instead
copybutton_prompt_text = r"\$ |>>> |julia> |pkg> "
copybutton_prompt_is_regexp = True
