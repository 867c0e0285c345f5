"""The table of bench/compare: one line a figure, one column a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.promql.promql_table import markdown, number

FIGURES = {
    "write_cpu_s_a_million_samples": "write: CPU, s a million samples",
    "write_samples_per_s": "write: samples/s",
    "disk_bytes_a_sample": "disk: bytes a sample",
    "rss_after_write_mib": "RSS after the writes, MiB",
    "rss_after_queries_mib": "RSS after the queries, MiB",
    "ready_s": "ready after SIGKILL, s",
}


def table(result: Mapping[str, Any], names: Sequence[str]) -> str:
    """Lines of the table in Markdown. names: the servers in `result`."""
    heads = ["figure", *(f"{name} {result[name]['version']}" for name in names)]
    return markdown(heads, list(_rows([result[name] for name in names])))


def _rows(servers: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for key, text in FIGURES.items():
        yield [text, *(f"{server[key]:g}" for server in servers)]
    for question in servers[0]["queries"]:
        cells = [server["queries"][question] for server in servers]
        yield [f"{question}: p50, p99, ms", *(f"{number(cell['p50'])}, {number(cell['p99'])}" for cell in cells)]
