"""How the documentation is built: ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from pooled_nb import __version__

project = "pooled_nb"
author = "the pooled_nb authors"
project_copyright = author
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "tables_of_code"]
exclude_patterns = ["_build", "_ext"]
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Public docstrings are numpy style.
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Raises", "params_style")]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "separated"

html_theme = "furo"
html_title = "pooled_nb"
# Whatever a page shows lies beside it: the documentation reads without a network.
html_show_sourcelink = False
