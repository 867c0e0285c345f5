"""`tsdb spark`: a command for each job, in a module of this folder. A job imports Spark only when it runs."""

from __future__ import annotations

from tsdb.cli.options.groups import Commands
from tsdb.cli.spark.building import rebuild, verify
from tsdb.cli.spark.downsample import downsample
from tsdb.cli.spark.export import export
from tsdb.cli.spark.import_files import import_files
from tsdb.cli.spark.jobs import jobs
from tsdb.cli.spark.merge_late import merge_late
from tsdb.cli.spark.migrate import migrate
from tsdb.cli.spark.pipeline import pipeline
from tsdb.cli.spark.rules import rules
from tsdb.cli.spark.run import run, scheduler

spark = Commands("Spark jobs over large amounts of data; on any Spark master, by default on this machine.")
spark.command("run")(run)
spark.command("jobs")(jobs)
spark.command("export")(export)
spark.command("import")(import_files)
spark.command("merge-late")(merge_late)
spark.command("migrate")(migrate)
spark.command("pipeline")(pipeline)
spark.command("rebuild")(rebuild)
spark.command("rules")(rules)
spark.command("scheduler")(scheduler)
spark.command("verify")(verify)
spark.command("downsample")(downsample)
