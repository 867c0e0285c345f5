"""The table of all pages. Each page has a row here, a module beside this one, and a template."""

from __future__ import annotations

from tsdb.ui.pages import explorer
from tsdb.ui.pages.page import Page
from tsdb.ui.pages.system import cardinality, partitions, pipeline, queries, rules, settings

PAGES = (
    Page("/", "Explorer", "explorer.html", explorer.values),
    Page("/ui/rules", "Rules", "rules.html", rules.values),
    Page("/ui/partitions", "Partitions", "partitions.html", partitions.values),
    Page("/ui/pipeline", "Pipeline", "pipeline.html", pipeline.values),
    Page("/ui/cardinality", "Cardinality", "cardinality.html", cardinality.values),
    Page("/ui/queries", "Queries", "queries.html", queries.values),
    Page("/ui/settings", "Settings", "settings.html", settings.values),
)
