"""`tsdb rules eval` evaluates rule files over the samples of a server; `tsdb rules status` shows those of its ruler."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsdb.cli.options.arguments import EnableFeature, Last, Milliseconds, Start, TableOrJson, instant
from tsdb.cli.options.connection import Connection, bearer_token, connected
from tsdb.cli.page import DEFAULT_PAGE, Page
from tsdb.cli.query.promql import steps_of
from tsdb.cli.terminal.errors import error_text, fail
from tsdb.cli.terminal.output import json_value, note, print_json, print_table, print_warnings, value_text
from tsdb.client import Client
from tsdb.model.errors import Unauthenticated, Unavailable
from tsdb.model.labels import canonical_labels, format_series
from tsdb.model.times import time_text

if TYPE_CHECKING:
    from tsdb.model.selector import Matcher
    from tsdb.promql.evaluate.storage import StoredSeries
    from tsdb.promql.syntax.features import Features
    from tsdb.rules.alerts import Labels
    from tsdb.rules.files import Rule, RuleFile
    from tsdb.rules.groups import RuleSample, RuleState
    from tsdb.rules.schedule import ScheduledGroup
    from tsdb.rules.values import RuleValue

EVALUATIONS_MAX = 10_000  # Evaluations of groups; each reads from the server.
ANSWER_BYTES_MAX = 256 << 20
WITHIN_S = 10.0
GROUP_COLUMNS = (
    *("group", "file", "rules", "failing", "pending", "firing", "evaluated through", "seconds", "partitions"),
    "waits for",
)
ALERT_COLUMNS = ("alert", "state", "since", "value")
RESULT_COLUMNS = ("rule", "series", "state", "value")


def features_of(names: list[str] | None) -> Features:
    """Features of PromQL by the names of the setting. An unknown name is a misuse."""
    from tsdb.promql.syntax.features import Features, features_named

    if not names:
        return Features()
    from tsdb.config.promql import FEATURES  # Imported here: settings need a library that a check does not.

    for name in names:
        if name not in FEATURES:
            raise typer.BadParameter(f"--enable-feature {name} is none of {', '.join(FEATURES)}")
    return features_named(names)


def status(
    page: Page = DEFAULT_PAGE,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", envvar="TSDB_TOKEN_FILE", help="File with the bearer token; without it TSDB_TOKEN."
        ),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option("--tls-ca", envvar="TSDB_TLS_CA", help="PEM of the authorities of a page with https."),
    ] = None,
    output: TableOrJson = "table",
) -> None:
    """Print the groups of a ruler, up to which time they are evaluated, what they wait for, and their alerts.

    The exit code is 1 if a rule fails. JSON is the answer of /api/v1/rules.
    """
    groups = _groups(page, token_file, tls_ca)
    if output == "json":
        print_json({"groups": groups})
    else:
        print_table(GROUP_COLUMNS, map(_group_row, groups), right=("rules", "failing", "pending", "firing", "seconds"))
        alerts = [alert for group in groups for rule in group["rules"] for alert in rule.get("alerts", ())]
        if alerts:
            print_table(ALERT_COLUMNS, map(_alert_row, alerts))
    if not groups:
        note(f"{page} has no rules: `tsdb standalone --rules FILE` evaluates them")
    failing = [(group, rule) for group in groups for rule in group["rules"] if rule.get("lastError")]
    for group, rule in failing:
        note(f"failing: {group['file']}: group {group['name']}, rule {rule['name']}: {rule['lastError']}")
    if failing:
        raise typer.Exit(1)


def _group_row(group: dict[str, Any]) -> tuple[object, ...]:
    rules = group["rules"]
    states = Counter(alert["state"] for rule in rules for alert in rule.get("alerts", ()))
    failing = sum(bool(rule.get("lastError")) for rule in rules)
    through = group.get("evaluatedThrough", group["lastEvaluation"])
    return (
        *(group["name"], group["file"], len(rules), failing, states["pending"], states["firing"]),
        *("never" if through.startswith("0001-") else through, f"{group['evaluationTime']:.3f}"),
        ", ".join(map(str, group.get("partitions") or ())) or "all",
        group.get("waitsFor") or "-",
    )


def _alert_row(alert: dict[str, Any]) -> tuple[object, ...]:
    return format_series(canonical_labels(alert["labels"])), alert["state"], alert["activeAt"], alert["value"]


def _groups(page: str, token_file: Path | None, tls_ca: Path | None) -> list[dict[str, Any]]:
    """The groups of /api/v1/rules."""
    url = f"{page}/api/v1/rules"
    token = bearer_token(token_file)
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if tls_ca is not None:
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(tls_ca))))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=WITHIN_S) as answer:
            return list(json.loads(answer.read(ANSWER_BYTES_MAX))["data"]["groups"])
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 401:
                raise Unauthenticated(f"{page} wants a token: give --token-file or TSDB_TOKEN") from None
            raise Unavailable(
                f"{url} answers {error.code}: give the --http address of a querier, a ruler or standalone",
                reason="no_rules",
            ) from None
    except (ValueError, KeyError, TypeError, HTTPException):
        raise Unavailable(
            f"{url} is not an answer of Prometheus's HTTP API: give the server's --http address", reason="wrong_port"
        ) from None
    except OSError as error:
        why = getattr(error, "reason", error)
        if isinstance(why, ConnectionRefusedError):
            raise Unavailable(
                f"nothing listens at {page}: start `tsdb standalone --rules FILE`, or give the server's --http address"
                " as --page",
                reason="unreachable",
            ) from None
        raise Unavailable(f"{url} does not answer: {why}", reason="unreachable") from None


@connected()
def evaluate(
    connection: Connection,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Rule files.")],
    at: Annotated[
        Milliseconds | None,
        typer.Option(
            "--at",
            parser=instant,
            metavar="TIME",
            help="The time of the evaluation, in the forms of --start; by default now.",
        ),
    ] = None,
    start: Start = None,
    end: Annotated[
        Milliseconds | None, typer.Option("--end", parser=instant, metavar="TIME", help="Last time, included.")
    ] = None,
    last: Last = None,
    enable_feature: EnableFeature = None,
    external_url: Annotated[
        str, typer.Option("--external-url", help="Address in templates, as the setting rules_external_url.")
    ] = "",
    output: TableOrJson = "table",
) -> None:
    """Evaluate rule files over the samples of a server and print the results; nothing is written.

    With --at, and by default, all groups are evaluated once; an alert with `for` is pending then. With a range each
    group is evaluated at each multiple of its interval, as a ruler does it, and the results of its last time are
    printed. The exit code is 1 if a rule fails.

    JSON is {"groups": [{"file", "name", "at_ms", "rules": [{"name", "type", "error", "series": [{"labels", "value"}],
    "alerts": [{"labels", "annotations", "state", "active_at_ms", "value"}]}]}], "samples", "warnings"}, where samples
    are all that a ruler would have written, and the value of a native histogram is a text.
    """
    span = steps_of(at, start, end, last, None)
    features = features_of(enable_feature)
    rules = [_loaded(path, features) for path in files]
    with connection.open() as client:
        run = _Run(client, rules, features, external_url)
        run.go(span.start_ms, span.end_ms, once=span.is_instant)
    print_warnings(dict.fromkeys(run.storage.warnings))
    shown = [run.shown(one) for one in run.groups]
    if output == "json":
        print_json({"groups": shown, "samples": run.samples, "warnings": list(dict.fromkeys(run.storage.warnings))})
    else:
        print_table(RESULT_COLUMNS, _result_rows(shown), right=("value",))
        note(f"{run.samples} samples in {run.evaluations} evaluations of groups; nothing is written")
    failed = False
    for group in shown:
        for rule in group["rules"]:
            if rule["error"]:
                failed = True
                note(f"failed: {group['file']}: group {group['name']}, rule {rule['name']}: {rule['error']}")
    if failed:
        raise typer.Exit(1)


def _loaded(path: Path, features: Features) -> RuleFile:
    from tsdb.rules.document import DocumentError
    from tsdb.rules.files import load_rules

    try:
        return load_rules(path, features=features)
    except DocumentError as error:
        first, *others = error.message.splitlines()
        fail(first, "\n".join(others))
    except OSError as error:
        fail(error_text(error))


class _ClientStorage:
    """Implements Storage with the raw samples of a server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.warnings: list[str] = []

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        from tsdb.promql.evaluate.storage import StoredSeries

        found = self._client.select(matchers, start_ms, end_ms + 1)
        self.warnings += found.warnings
        return StoredSeries(found.canonical, found.starts, found.ts_ms, found.values, found.warnings, found.details)


class _Run:
    """Evaluations of the groups, one time after another. groups: those that others read come first."""

    def __init__(self, client: Client, files: Sequence[RuleFile], features: Features, external_url: str) -> None:
        from tsdb.promql.evaluate.query import QueryOptions
        from tsdb.rules.groups import RuleSurroundings
        from tsdb.rules.memory import MemoryStorage, OverlaidStorage
        from tsdb.rules.schedule import RuleSchedule
        from tsdb.rules.vectors import vector_query

        schedule = RuleSchedule()
        schedule.renew(files)
        self.groups: Sequence[ScheduledGroup] = schedule.groups
        self.storage = _ClientStorage(client)
        self.evaluations = self.samples = 0
        self._newer = MemoryStorage()
        self._values: dict[Labels, RuleValue] = {}  # The last value of each series.
        overlaid = OverlaidStorage(self.storage, self._newer)
        query = vector_query(lambda: overlaid, QueryOptions(features=features))
        self._surroundings = RuleSurroundings(query, self._write, external_url=external_url)

    def go(self, start_ms: int, end_ms: int, *, once: bool) -> None:
        """Evaluate all groups in [start_ms, end_ms], or once at its start. Raises BadParameter for too many times."""
        from tsdb.rules.groups import evaluate_group

        times: dict[int, list[ScheduledGroup]] = {}
        for one in self.groups:
            interval_ms = one.group.interval_ms
            first_ms = -(-start_ms // interval_ms) * interval_ms
            wanted = [start_ms] if once else range(first_ms, end_ms + 1, interval_ms)
            self.evaluations += len(wanted)
            if self.evaluations > EVALUATIONS_MAX:
                raise typer.BadParameter(
                    f"the range has over {EVALUATIONS_MAX} evaluations of groups: take a shorter one, or fewer files"
                )
            for at_ms in wanted:
                times.setdefault(at_ms, []).append(one)
        for at_ms, groups in sorted(times.items()):
            for one in groups:
                offset_ms = one.group.query_offset_ms or 0
                one.state = evaluate_group(one.group, one.state, at_ms, offset_ms, self._surroundings)
                one.evaluated_ms = at_ms

    def _write(self, samples: Sequence[RuleSample]) -> None:
        self.samples += len(samples)
        for sample in samples:
            self._newer.add(sample.labels, [(sample.ts_ms, sample.value)])
            self._values[sample.labels] = sample.value

    def shown(self, one: ScheduledGroup) -> dict[str, Any]:
        """A group with the results of its last time, as plain values for JSON."""
        rules = zip(one.group.rules, one.state.rules, strict=True)
        return {
            "file": one.group.file,
            "name": one.group.name,
            "at_ms": one.evaluated_ms,
            "rules": [self._shown_rule(rule, state) for rule, state in rules],
        }

    def _shown_rule(self, rule: Rule, state: RuleState) -> dict[str, Any]:
        from tsdb.rules.alerts import active
        from tsdb.rules.files import RecordingRule

        recording = isinstance(rule, RecordingRule)
        series = [
            {"labels": dict(labels), "value": _shown_value(self._values[labels])}
            for labels in (sorted(state.series) if recording else ())
        ]
        alerts = [
            {
                "labels": dict(alert.labels),
                "annotations": dict(alert.annotations),
                "state": alert.state.value,
                "active_at_ms": alert.active_at_ms,
                "value": json_value(alert.value),
            }
            for alert in active(state.alerts)
        ]
        kind = "recording" if recording else "alerting"
        return {"name": rule.name, "type": kind, "error": state.error, "series": series, "alerts": alerts}


def _shown_value(value: RuleValue) -> float | str | None:
    """The value for JSON; a histogram is a text."""
    from tsdb.promql.evaluate.native.histograms import from_columns
    from tsdb.promql.evaluate.native.shown import shown_histograms

    return json_value(value) if isinstance(value, float) else next(shown_histograms(from_columns(value)))


def _result_rows(groups: Sequence[dict[str, Any]]) -> Iterator[tuple[object, ...]]:
    for rule in (rule for group in groups for rule in group["rules"]):
        for found in (*rule["series"], *rule["alerts"]):
            state = f"{found['state']} since {time_text(found['active_at_ms'])}" if "state" in found else "recorded"
            value = found["value"] if isinstance(found["value"], str) else value_text(found["value"])
            yield rule["name"], format_series(canonical_labels(found["labels"])), state, value
