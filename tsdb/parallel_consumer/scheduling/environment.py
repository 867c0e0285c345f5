"""Environment: has the settings and services that all parts of one consumer share."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tsdb.parallel_consumer.clock import Clock
from tsdb.parallel_consumer.limited_log import LimitedLog
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.policy import ErrorPolicy


@dataclass(frozen=True, slots=True)
class Environment:
    """randomness: random numbers for the jitter of backoffs. Everything but `log` is used on the consumer's thread
    alone."""

    options: Options
    policy: ErrorPolicy
    metrics: ConsumerMetrics
    log: LimitedLog
    clock: Clock
    randomness: random.Random
