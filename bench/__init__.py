"""Benchmarks: one module each; `python -m bench NAME` prints one JSON object last. Figures: docs/benchmarks.md."""

from tsdb.ops.grpc.environment import set_grpc_environment

set_grpc_environment()  # The same settings as in `tsdb`.
