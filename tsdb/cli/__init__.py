"""The `tsdb` command: one file for each noun. Data on stdout, all else on stderr; exit 0 good, 1 failed, 2 misused."""

from tsdb.ops.grpc.environment import set_grpc_environment

set_grpc_environment()
