"""Entry point for spark-submit: the `tsdb` command, whose arguments name the job."""

from tsdb.cli.main import main

main()
