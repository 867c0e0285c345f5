"""The `tsdb` command has one file for each noun. Data goes to stdout, everything else to stderr; exit code 0 is good, 1
failed, 2 misused."""

import os

from tsdb.ops.grpc.environment import set_grpc_environment

set_grpc_environment()
# numpy starts a thread a core at its import, a tenth of the CPU of `tsdb query`. No code of ours multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
