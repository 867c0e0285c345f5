"""`tsdb kafka` has a command for each verb, in a module of this folder."""

from __future__ import annotations

from tsdb.cli.kafka.apply import apply
from tsdb.cli.kafka.check import check
from tsdb.cli.kafka.plan import plan
from tsdb.cli.kafka.watch import watch
from tsdb.cli.options.groups import Commands

kafka = Commands("Operations on the Kafka cluster of a log: move partitions and leaders, and check retention.")
kafka.command("plan")(plan)
kafka.command("apply")(apply)
kafka.command("watch")(watch)
kafka.command("check")(check)
