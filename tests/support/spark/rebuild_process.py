"""A rebuild in a separate process, for tests that kill it.

`python -m support.spark.rebuild_process URL FROM_MS TO_MS JOB_ID SCRATCH` rebuilds windows of a log under a job id.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(url: str, from_ms: str, to_ms: str, job_id: str, scratch: str) -> None:
    """Rebuild, or run until killed."""
    from spark_backfill.jobs.rebuild.job import rebuild
    from spark_backfill.places import Places
    from support.spark.pipelines import build_options
    from support.spark.spark import test_session
    from tsdb.chunks.late_scan import Windows
    from tsdb.log.open import open_log
    from tsdb.log.settings import LogSettings
    from tsdb.model.time_set import PRODUCTION

    with open_log(url, settings=LogSettings(embedded_guest=True)) as log:
        options = build_options(log, Places(url), PRODUCTION)
    with test_session(Path(scratch)) as spark:
        print(rebuild(spark, options, Windows(int(from_ms), int(to_ms)), job_id=job_id).as_dict())


if __name__ == "__main__":
    main(*sys.argv[1:])
