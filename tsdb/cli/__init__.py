"""The `tsdb` command: one file for each noun. Data on stdout, all else on stderr; exit 0 good, 1 failed, 2 misused."""

import os

from tsdb.ops.grpc.environment import set_grpc_environment

set_grpc_environment()
# numpy starts a thread a core at its import, a tenth of the CPU of `tsdb query`. No code of ours multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
