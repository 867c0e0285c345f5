"""Joins: operands whose series find each other, and matching modifiers of every kind."""

from __future__ import annotations

import random

from support.promql.differential.queries.dialect import Dialect
from support.promql.differential.queries.selectors import Selectors
from support.promql.differential.queries.vocabulary import BY_INSTANCE, LABELS, Deck
from tsdb.promql.syntax.tree import SET_OPERATORS

KEYS = ("job, instance", "instance, job", "job", "instance", "")
OTHERS = ("version, branch", "version, branch, region", "job", "code, method")


class Joins:
    """Binary operations between vectors."""

    def __init__(self, chance: random.Random, dialect: Dialect) -> None:
        self._random = chance
        self._has_fill = dialect.has_fill
        self._shapes = Deck(
            chance, ("one to one", "grouped", "many to one", "one to many", "ignoring", "many", "twins")
        )

    def joined(self, selectors: Selectors, written: str, operator: str) -> str:
        """written: the operator with its `bool`."""
        chance, shape = self._random, self._shapes.draw()
        one, other = (selectors.of(chance.choice(BY_INSTANCE)) for _ in range(2))
        is_set = operator in SET_OPERATORS
        match shape:
            case "grouped":
                key = chance.choice(KEYS[:4])
                reduced = f"sum by ({key}) ({selectors.of('requests_total')})"
                matching = f"on ({key}) {self._fill(is_set)}" if chance.random() < 0.5 else ""
                return f"{reduced} {written} {matching}max by ({key}) ({other})"
            case "many to one" if not is_set:
                include = chance.choice(("", "()", "(version)", "(version, branch)", "(absent)", "(job)"))
                matching = f"on (job, instance) group_left {include}"
                return f"{selectors.of('requests_total')} {written} {matching} {self._fill(is_set)}{other}"
            case "one to many" if not is_set:
                include = chance.choice(("", "(version)", "(branch, region)"))
                many = selectors.of(chance.choice(("requests_total", "latency_seconds_bucket")))
                return f"{other} {written} on (instance, job) group_right {include} {self._fill(is_set)}{many}"
            case "ignoring":
                return f"{one} {written} ignoring ({chance.choice(OTHERS)}) {self._fill(is_set)}{other}"
            case "many":
                return f"{selectors.of('requests_total')} {written} {self.loose_matching(operator)}{other}"
            case "twins":
                names = chance.choice(('__name__=~"twin_.*"', '__name__=~"twin_a|memory_bytes"'))
                return f"{{{names}}} {written} on (job, instance, __name__) {self._fill(is_set)}{one}"
        return f"{one} {written} on (job, instance) {self._fill(is_set)}{other}"

    def loose_matching(self, operator: str) -> str:
        """A modifier that may suit the operands or not."""
        chance = self._random
        if chance.random() < 0.4:
            return ""
        labels = ", ".join(chance.sample(LABELS, chance.randrange(4)))
        matching = f"{chance.choice(('on', 'ignoring'))} ({labels}) "
        if operator in SET_OPERATORS or chance.random() < 0.6:
            return matching
        return f"{matching}{chance.choice(('group_left', 'group_right'))} {chance.choice(('', '()', '(version)'))} "

    def info_arguments(self, selectors: Selectors) -> list[str]:
        """A metric for `info`, and in most queries the labels to add."""
        chance = self._random
        metric = selectors.of(chance.choice(("requests_total", "up", "errors_total", "temperature_celsius")))
        data = chance.choice(("", '{region=~".+"}', '{__name__="build_info"}', '{version!=""}', '{region="eu"}'))
        return [metric, data] if data else [metric]

    def _fill(self, is_set: bool) -> str:
        if is_set or not self._has_fill or self._random.random() > 0.15:
            return ""
        return self._random.choice(("fill (0) ", "fill_left (1) ", "fill_right (-1) ", "fill_left (2) fill_right (3) "))
