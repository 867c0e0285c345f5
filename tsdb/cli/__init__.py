"""The `tsdb` command: one file per noun. Data on stdout, all else on stderr; exit 0 good, 1 failed, 2 misused."""

import os

# Before anything imports gRPC, which reads it once: its own messages would mix with ours on stderr, and what matters of
# them is in our errors.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
