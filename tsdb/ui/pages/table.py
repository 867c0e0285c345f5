"""The table of all pages. A page is one row here, one module beside this one and one template."""

from __future__ import annotations

from tsdb.ui.pages import explorer
from tsdb.ui.pages.page import Page

PAGES = (Page("/", "Explorer", "explorer.html", explorer.values),)
