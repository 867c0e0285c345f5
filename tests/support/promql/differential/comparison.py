"""Comparison of this store with a Prometheus server: the same samples, a seed, a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from support.promql.differential import prometheus, standalone
from support.promql.differential.dataset import BASE_MS, StoredHistograms, StoredSamples, dataset, native_dataset
from support.promql.differential.queries.dialect import RENAMED, dialect_of
from support.promql.differential.queries.generator import Generator
from support.promql.differential.queries.selectors import Times
from support.promql.differential.rules import OTHER_ORDER, THREE, Rule, rules_for
from support.promql.differential.run import Report, Run
from support.promql.differential.targets import HttpTarget, InProcess, Target
from tsdb.promql.evaluate.query import QueryOptions
from tsdb.promql.syntax.features import ALL_FEATURES

# Earlier versions have other annotations, and 2.42 none.
ANNOTATED = (3, 15)
DELAYED_NAMES = "promql-delayed-name-removal"


@dataclass(frozen=True, slots=True)
class Choice:
    """Random queries by seed. differences_max: number of differences after which a run ends."""

    seed: int
    queries: int
    differences_max: int


def compare_evaluator(program: Path | str, folder: Path, choice: Choice, *, delays_names: bool = False) -> Report:
    """The evaluator in this process, beside a server that is started in a folder."""
    series, natives = dataset(), native_dataset()
    options = QueryOptions(features=ALL_FEATURES, delays_name_removal=delays_names)
    ours = InProcess(series, options, natives)
    return _compare(ours, program, folder, choice, BASE_MS, series, delays_names=delays_names, natives=lambda: natives)


def compare_standalone(program: Path | str, folder: Path, choice: Choice, *, delays_names: bool = False) -> Report:
    """A standalone process of this store, beside a server that is started in a folder."""
    base_ms = standalone.recent_base_ms()
    series = dataset(base_ms)
    features = (*standalone.FEATURES, DELAYED_NAMES) if delays_names else standalone.FEATURES
    with standalone.standalone(folder, base_ms, series, features) as ours:
        return _compare(
            ours, program, folder, choice, base_ms, series, delays_names=delays_names, more_rules=[OTHER_ORDER]
        )


def _compare(
    ours: Target,
    program: Path | str,
    folder: Path,
    choice: Choice,
    base_ms: int,
    series: list[StoredSamples],
    *,
    delays_names: bool,
    more_rules: Sequence[Rule] = (),
    natives: Callable[[], Sequence[StoredHistograms]] = list,
) -> Report:
    features = (*prometheus.FEATURES, DELAYED_NAMES) if delays_names else prometheus.FEATURES
    with prometheus.prometheus(program, folder, series, features, natives) as address:
        version = prometheus.version_of(address)
        is_left_open = version >= THREE
        is_native = version >= prometheus.UPSTREAM_VERSION and bool(natives())
        with closing(HttpTarget(address, {} if is_left_open else RENAMED)) as theirs:
            dialect = replace(dialect_of(theirs), has_native_histograms=is_native)
            generator = Generator(choice.seed, dialect, Times(base_ms, aligned=is_left_open))
            rules = [*rules_for(version), *more_rules]
            run = Run(ours, theirs, rules, with_annotations=version >= ANNOTATED)
            return run.compare(generator.queries(choice.queries), differences_max=choice.differences_max)
