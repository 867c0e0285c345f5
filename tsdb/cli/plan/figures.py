"""The measured figures behind a plan, each with its line in docs/benchmarks.md. A test compares the two."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure. section: heading on the page. line: a text below it, in which {} stands for `shown`.

    scale: from the number on the page to `value`, whose unit `unit` names.

    """

    section: str
    line: str
    shown: str
    scale: float
    unit: str

    @property
    def value(self) -> float:
        """The figure in its unit."""
        return float(self.shown.replace(",", "")) * self.scale


# CPU of gateway and store together by the number of samples in a request, with the log in Kafka.
REQUEST_CPU_S = {
    10: Figure("Write", "| Kafka, 3,500 series | 10 | 64 | {} ms a request |", "0.56", 1e-3, "CPU s a request"),
    100: Figure("Write", "| Kafka, 3,500 series | 100 | 64 | {} ms a request |", "0.69", 1e-3, "CPU s a request"),
    1000: Figure(
        "Write",
        "| Kafka, 3,500 series (26 Nov) | 1,000 | 4 | {} s a million samples, broker",
        "1.5",
        1e-3,
        "CPU s a request",
    ),
}
BROKER_CPU_S = Figure(
    "Write",
    "| Kafka, 3,500 series (26 Nov) | 1,000 | 4 | 1.5 s a million samples, broker {} |",
    "1.0",
    1e-6,
    "CPU s a sample",
)
RECORDS_A_REQUEST = Figure(
    "Write", "a produce request for each record: {} records", "4.0", 1, "records a request of 1,000 samples"
)
SERIES_TABLE_BYTES = Figure(
    "Write", "| memory of the table, 2 million series, MiB | {} |", "144", MIB / 2e6, "bytes a series"
)
GATEWAY_BYTES = Figure("Write", "| RSS of a gateway on Kafka, 2 million series, MiB | {} |", "398", MIB, "bytes")
LOG_BYTES = Figure("Write", "| 3,500 series | {} | 23 |", "19.0", 1, "bytes a sample, one replica")
SERIES_BYTES = Figure("Write", "| a host's metrics | 12.5 | {} |", "49", 1, "bytes an announcement, one replica")

FOLLOW_CORES = Figure("Store", "| cores, fetches do not linger | {} |", "0.17", 1 / 150e3, "cores a sample a second")
HEAD_BYTES = Figure("Store", "| heads, bytes a sample | {} |", "6.4", 1, "bytes a sample")
INDEX_BYTES = Figure("Store", "| index, label text included | {} B a series |", "132", 1, "bytes a series")
REPLAY_RATE = Figure("Store", "| Kafka | 3.8 s | 5.4 s | {} M |", "6.0", 1e6, "samples a CPU s")
RECORDS_RATE = Figure("Store", "| 25 samples | records per CPU s | {}-143 k |", "141", 1e3, "records a CPU s")

STANDALONE_WRITE_CPU_S = Figure(
    "Comparison", "| writes: CPU, s a million samples | {} | 4.24 |", "2.96", 1e-6, "CPU s a sample"
)
CHUNKER_CORES = Figure("Chunk stage and loader", "| cores | {} | 0.3 |", "0.22", 1 / 150e3, "cores a sample a second")
CHUNK_BYTES = Figure("Chunk stage and loader", "| bytes a sample | {} | - |", "2.30", 1, "bytes a sample")
LOADER_CPU_S = Figure(
    "Chunk stage and loader",
    "CPU of the loader: 160-{} us a chunk of 1,200 samples.",
    "235",
    1e-6 / 1200,
    "CPU s a sample",
)
WINDOW_CPU_S = Figure("Spark", "Windows add {} ns a sample", "630", 1e-9, "CPU s a sample")
WORKER_BYTES = Figure("Spark", "| 2,000 | 2 | 1 M | 823 | 6,031 | {} MiB |", "343", MIB, "bytes")

CASSANDRA_BYTES = Figure(
    "Cassandra", "| bytes on disk a sample, index included | {} |", "2.39", 1, "bytes a sample, index included"
)
QUERY_CPU_S = Figure(
    "PromQL", "| `sum by (g) (rate(x[5m]))` | 60 | 90 | {} |", "83", 1e-3, "CPU s a query of 10,000 series x 240"
)
STORE_READ_CPU_S = Figure(
    "Read", "| CPU of the store a read | 0.92 | 2.5 | {} |", "5.9", 1e-3, "CPU s a read of 10,000 series x 240"
)


def figures() -> dict[str, Figure]:
    """All figures by name."""
    named = {name.lower(): value for name, value in globals().items() if isinstance(value, Figure)}
    return named | {f"request_cpu_s of {size} samples": value for size, value in REQUEST_CPU_S.items()}
