"""The agent stores what a real Prometheus stores of the same pages: both scrape one server, page by page."""

from __future__ import annotations

import gzip
import http.server
import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stack.ports import Ports
from support.senders.prometheus import Recorder, binary
from support.servers.logs import wait_until
from tsdb.cli.agent.scrape import ScrapeRules, ScrapeSource, ScrapeTarget, refusals
from tsdb.model.labels import parse_labels

INTERVAL_S = 2
RUNS_MAX = 3
TEXT, OPEN = "text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0"
# Seconds in a page that stand for a time soon after it is served first, and a second later. Prometheus sends no sample
# from before its start, and takes none 10 minutes ahead.
SOON, LATER, SOON_AFTER_S = "SOON", "LATER", 300
BOTH = "a 1\nb 2\n"
LONG = "x" * 40

Page = str | bytes | int  # A body, or a status.
Stored = dict[tuple[str, ...], dict[int, int]]  # Labels in pairs -> number of the scrape, or time of the page -> bits.


@dataclass(frozen=True)
class Row:
    """Pages of one target, in turn. rules: the rules of scrape_config. headers: the headers of each answer."""

    pages: list[Page]
    kind: str = TEXT
    rules: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    targets: int = 1


ROWS: dict[str, Row] = {
    # Series that end.
    "a series vanishes": Row([BOTH, "a 1\n", "a 1\n", BOTH, "a 3\n"]),
    "a page is down": Row([BOTH, 500, 503, BOTH]),
    "a page is empty": Row([BOTH, "", BOTH]),
    "a page is cut in a line": Row([BOTH, "a 1\nb", BOTH]),
    "a page is not parsed": Row([BOTH, "c 1\na 1\nb {\n", BOTH, BOTH]),
    "no page at first": Row([404, BOTH, 204]),
    "a series with a time does not end": Row([f"a 1 {SOON}000\nb 2\n", "c 1\n", f"a 2 {LATER}000\n"]),
    "times are ignored": Row([f"a 1 {SOON}000\n", "c 1\n"], rules={"honor_timestamps": False}),
    "a value is nan": Row(["a NaN\nb nan\nc -Inf\nd +Inf\ne 1e-300\n"]),
    # Labels.
    "exported": Row(['m{instance="a",exported_instance="b"} 1\nm{instance="a",exported_instance="c"} 2\n']),
    "exported twice": Row(['m{job="a",exported_job="b",exported_exported_job="c",instance="d"} 1\n']),
    "exported is empty": Row(['m{job="",exported_job="b"} 1\n']),
    "honor_labels": Row(['m{instance="a"} 1\nn{instance=""} 2\no{exported_job="x"} 3\n'], rules={"honor_labels": True}),
    "escapes": Row(['m{a="back\\\\slash",b="q\\"",c="n\\nl",d="\\x"} 1\n']),
    "utf-8 values": Row(['m{a="é",b="日本"} 1\n']),
    "trailing comma": Row(['m{a="1",} 1\n']),
    "a blank behind": Row(["m 1 \n"]),
    "a blank behind the name": Row(['m {a="1"} 1\n']),
    "blanks among labels": Row(['m{ a = "1" , b="2" } 1\n']),
    "two blanks before the value": Row(["m  1\n"]),
    "tabs": Row(['m\t1\nn{a="1"}\t2\n']),
    "empty lines": Row(["\nm 1\n\n \t\nn 2\n"]),
    "comments": Row(["# a comment\n#another\nm 1\n # not at the start\n# HELP m\n"]),
    "no blank before the value": Row(['m{a="1"}1\n']),
    "no blank in a type": Row(["#TYPE m gauge\nm 1\n"]),
    "an empty help": Row(["# HELP m \nm 1\n"]),
    "a time twice": Row(["m 1 2 3\n"]),
    "no value": Row(["m\n"]),
    "an empty pair of braces": Row(["m{} 1\n"]),
    "a comma alone": Row(["m{,} 1\n"]),
    "a series twice": Row(["m 1\nn 1\n", "m 1\nn 1\n"]),
    "an empty label": Row(['m{a="",b="1"} 1\n']),
    # Limits.
    "sample_limit": Row([BOTH, BOTH + "c 3\n", BOTH + "c 4\n"], rules={"sample_limit": 2}),
    "label_limit": Row(['m{a="1"} 1\n', 'n 1\nm{a="1",b="2"} 1\n', "m 1\n"], rules={"label_limit": 4}),
    "label_name_length_limit": Row(["m 1\n", f'm{{{LONG}="1"}} 1\n'], rules={"label_name_length_limit": 20}),
    "label_value_length_limit": Row(["m 1\n", f'm{{a="{LONG}"}} 1\n'], rules={"label_value_length_limit": 30}),
    "body_size_limit": Row([BOTH, BOTH * 40, BOTH], rules={"body_size_limit": 100}),
    "target_limit": Row([BOTH, BOTH], rules={"target_limit": 1}, targets=2),
    # Pages that are refused as a whole.
    "byte order mark": Row([BOTH, "\ufeff" + BOTH, BOTH]),
    "byte order mark before a comment": Row(["\ufeff# HELP a b\n" + BOTH]),
    "a name with a dash": Row([BOTH, "a-b 1\n"]),
    "a name with a dot": Row([BOTH, "a.b 1\n"]),
    "a name with a letter beyond ascii": Row([BOTH, "é 1\n"]),
    "a name that begins with a digit": Row([BOTH, "1a 1\n"]),
    "a label with a dash": Row([BOTH, 'a{b-c="1"} 1\n']),
    "a colon in a label": Row([BOTH, 'a{b:c="1"} 1\n']),
    "no name": Row([BOTH, '{a="1"} 1\n']),
    "carriage returns": Row([BOTH, "a 1\r\nb 2\r\n"]),
    "an unknown type": Row([BOTH, "# TYPE a counted\na 1\n"]),
    "a type with a blank": Row([BOTH, "# TYPE a counter \na 1\n"]),
    "an exemplar in text": Row([BOTH, 'a 1 # {t="x"} 1\n']),
    "a time in seconds": Row([BOTH, "a 1 1700000000.5\n"]),
    "a hexadecimal value": Row([BOTH, "a 0x10\n"]),
    "a value with underscores": Row([BOTH, "a 1_000\n"]),
    "not utf-8": Row([BOTH, b'a{b="\xff"} 1\n']),
    "no line break at the end": Row(["a 1\nb 2"]),
    "a type without a name": Row([BOTH, "# TYPE\na 1\n"]),
    # OpenMetrics.
    "openmetrics": Row([f'# TYPE a counter\na_total 1 # {{t="x"}} 2 3.5\nb 2 {SOON}.5\n# EOF\n'], OPEN),
    "openmetrics cut": Row(["a 1\n# EOF\n", "a 1\n", "a 1\n# EOF\n"], OPEN),
    "openmetrics goes on": Row(["a 1\n# EOF\n", "a 1\n# EOF\nb 1\n"], OPEN),
    "openmetrics with an empty line": Row(["a 1\n# EOF\n", "a 1\n\n# EOF\n"], OPEN),
    "openmetrics with two blanks": Row(["a 1\n# EOF\n", "a  1\n# EOF\n"], OPEN),
    "openmetrics with a tab": Row(["a 1\n# EOF\n", "a\t1\n# EOF\n"], OPEN),
    "openmetrics with blanks among labels": Row(["a 1\n# EOF\n", 'a{b="1", c="2"} 1\n# EOF\n'], OPEN),
    "openmetrics with a comment": Row(["a 1\n# EOF\n", "# note\na 1\n# EOF\n"], OPEN),
    "openmetrics with a blank at the end": Row(["a 1\n# EOF\n", "a 1 \n# EOF\n"], OPEN),
    "openmetrics without a last line break": Row(["a 1\n# EOF"], OPEN),
    "openmetrics with an untyped": Row(["a 1\n# EOF\n", "# TYPE a untyped\na 1\n# EOF\n"], OPEN),
    "openmetrics with an unknown": Row(["# TYPE a unknown\n# UNIT a_s s\n# HELP a b\na 1\n# EOF\n"], OPEN),
    "openmetrics with a time in text": Row(["a 1 # EOF\n# EOF\n"], OPEN),
    "a text that ends as openmetrics": Row([f"a 1 {SOON}000\n# EOF\n"]),
    # The path of the page.
    "gzip": Row([gzip.compress(BOTH.encode())], headers={"Content-Encoding": "gzip"}),
    "gzip cut": Row([gzip.compress(BOTH.encode())[:-4]], headers={"Content-Encoding": "gzip"}),
    "a redirect": Row([302, BOTH], headers={"Location": "again"}),
    "another type": Row([BOTH], "text/html"),
}


@contextmanager
def pages_served() -> Iterator[str]:
    """An address with a path for each row. Each client sees the row's pages in turn, and the last one for ever."""
    counts: Counter[tuple[str, str]] = Counter()
    lock = threading.Lock()
    rows = {f"/{number}": row for number, row in enumerate(ROWS.values())}
    soon_s = time.time_ns() // 1_000_000_000 + SOON_AFTER_S

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            client = self.headers.get("User-Agent", "").split("/")[0] + query
            row = rows[path.removesuffix("/again")]
            with lock:
                turn = counts[path, client]
                counts[path, client] += 1
            page = row.pages[min(turn, len(row.pages) - 1)]
            if path.endswith("/again"):
                page = BOTH
            if isinstance(page, str):
                page = page.replace(SOON, str(soon_s)).replace(LATER, str(soon_s + 1))
            self.send_response(page if isinstance(page, int) else 200)
            body = page.encode() if isinstance(page, str) else page if isinstance(page, bytes) else b""
            for name, value in {"Content-Type": row.kind, **row.headers}.items():
                self.send_header(name, f"{path}/{value}" if name == "Location" else value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def job_of(name: str, number: int, address: str) -> dict[str, Any]:
    row = ROWS[name]
    targets = [{"targets": [address], "labels": {"__param_n": str(n)}} for n in range(row.targets)]
    return {
        "job_name": f"row{number}",
        "metrics_path": f"/{number}",
        "static_configs": targets if row.targets > 1 else [{"targets": [address]}],
        **{rule: f"{value}B" if rule == "body_size_limit" else value for rule, value in row.rules.items()},
    }


def by_job(samples: dict[bytes, dict[int, int]]) -> dict[str, Stored]:
    """The first len(pages) scrapes by job, with the number of the scrape in place of its time."""
    found: dict[str, Stored] = {}
    for canonical, values in samples.items():
        labels = dict(parse_labels(canonical))
        found.setdefault(labels["job"], {})[tuple(sum(sorted(labels.items()), ()))] = values
    return found


def numbered(stored: Stored, times: list[int], scrapes: int) -> Stored:
    """Replaces times of scrapes by their numbers, and removes later scrapes and the durations."""
    numbers = {ts_ms: number for number, ts_ms in enumerate(times)}
    kept: Stored = {}
    for labels, values in stored.items():
        of_series = {numbers.get(ts_ms, ts_ms): bits for ts_ms, bits in values.items()}
        of_series = {at: bits for at, bits in of_series.items() if at < scrapes or at > 1_000_000_000_000}
        of_series = {at: bits for at, bits in of_series.items() if at < scrapes or at not in times[scrapes:]}
        if of_series and "scrape_duration_seconds" not in labels:
            kept[labels] = of_series
    return kept


def ours(address: str, number: int, name: str) -> Stored:
    row, target = ROWS[name], ScrapeTarget(f"row{number}", f"http://{address}/{number}")
    refusal = refusals([target] * row.targets, row.rules.get("target_limit", 0)).get(target.job)
    source = ScrapeSource(target, 5.0, ScrapeRules(**row.rules), refusal=refusal)
    found: Stored = {}
    for turn in range(len(row.pages)):
        for sample in source.measure(turn):
            labels = tuple(sum(sorted(parse_labels(sample.canonical)), ()))
            if "scrape_duration_seconds" not in labels:
                values = found.setdefault(labels, {})
                assert values.get(sample.ts_ms) in (None, int(np.float64(sample.value).view(np.int64)))
                values[sample.ts_ms] = int(np.float64(sample.value).view(np.int64))
    return found


def times_of(samples: Mapping[bytes, Mapping[int, int]], name: str) -> dict[str, dict[int, float]]:
    """Values of a series of the target by job and time."""
    found: dict[str, dict[int, float]] = {}
    for labels, values in samples.items():
        pairs = dict(parse_labels(labels))
        if pairs["__name__"] == name:
            for ts_ms, bits in values.items():
                found.setdefault(pairs["job"], {})[ts_ms] = float(np.int64(bits).view(np.float64))
    return found


def prometheus_of(folder: Path, address: str) -> dict[str, Stored]:
    """Samples of Prometheus's remote write, by row. Empty when a scrape timed out: the machine was too busy."""
    with Recorder() as recorder, Ports(1) as ports:
        config = {
            "global": {"scrape_interval": f"{INTERVAL_S}s", "scrape_timeout": f"{INTERVAL_S}s"},
            "scrape_configs": [job_of(name, number, address) for number, name in enumerate(ROWS)],
            "remote_write": [{"url": f"http://{recorder.address}/", "queue_config": {"batch_send_deadline": "200ms"}}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        command = [
            binary("prometheus"),
            "--enable-feature=agent",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.agent.path={folder}/agent",
            f"--web.listen-address=127.0.0.1:{ports.numbers[0]}",
        ]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:

            def enough() -> bool:
                # The agent sends this metric of a target last.
                found = times_of(recorder.samples(), "scrape_series_added")
                return all(
                    len(found.get(f"row{number}", ())) > len(row.pages) for number, row in enumerate(ROWS.values())
                )

            wait_until(enough, 90.0)
        finally:
            process.kill()
            process.wait()
        samples = recorder.samples()
    by_row = by_job(samples)
    found = {}
    for number, (name, row) in enumerate(ROWS.items()):
        durations = times_of(samples, "scrape_duration_seconds")[f"row{number}"]
        times = sorted(durations)
        if any(durations[at] > 0.9 * INTERVAL_S for at in times[: len(row.pages)]):
            return {}
        found[name] = numbered(by_row[f"row{number}"], times, len(row.pages))
    return found


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Stored, Stored]]:
    """Samples that Prometheus sent to its remote write, and samples that the agent would send, by row."""
    for _ in range(RUNS_MAX):
        with pages_served() as address:
            theirs = prometheus_of(tmp_path_factory.mktemp("prometheus"), address)
            if theirs:
                return {name: (theirs[name], ours(address, number, name)) for number, name in enumerate(ROWS)}
    raise AssertionError(f"Prometheus timed out in {RUNS_MAX} runs")


@pytest.mark.parametrize("name", ROWS)
def test_the_agent_stores_what_prometheus_stores(scraped: dict[str, tuple[Stored, Stored]], name: str) -> None:
    theirs, found = scraped[name]
    assert found == theirs
