"""A migration in a separate process, for tests that kill it.

`python -m support.spark.migrate_process LOG PREFIX FROM TO JOB_ID SCRATCH` copies a history under a job id. Its last
line is the result.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(log: str, prefix: str, begin: str, end: str, job_id: str, scratch: str) -> None:
    """Migrate, or run until killed."""
    from spark_backfill.jobs.migrate.job import MigrateOptions, migrate
    from spark_backfill.places import Places
    from support.backup.backups import PARTITIONS
    from support.spark.spark import test_session
    from tsdb.history.loader.loader import GROUP
    from tsdb.model.meta import MetaSettings

    with test_session(Path(scratch)) as spark:
        places, meta = Places(log, prefix, begin), MetaSettings(partitions=PARTITIONS)
        print(migrate(spark, places, meta, MigrateOptions(end, GROUP, job_id)).as_dict(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
