"""What spark-submit runs: the `tsdb` command, whose arguments say which job."""

from tsdb.cli.main import main

main()
