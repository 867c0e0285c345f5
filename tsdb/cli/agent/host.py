"""Measures this host with psutil, under the names of the Prometheus node exporter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import psutil

from tsdb.cli.agent.sample import Measured, Staleness
from tsdb.model.labels import canonical_labels

Reading = tuple[str, dict[str, str], float]  # Name, labels in addition to job and instance, and value.


class HostSource:
    """Metrics of the machine, labelled job and instance. `measure` belongs to one thread."""

    def __init__(self, job: str, instance: str) -> None:
        self._target = {"job": job, "instance": instance}
        self._staleness = Staleness()
        self._labels: dict[tuple[str, tuple[str, ...]], bytes] = {}
        self._readers: list[Callable[[], Iterator[Reading]]] = [
            cpu, memory, load, disks, network, filesystems, system,
        ]  # fmt: skip

    def measure(self, now_ms: int) -> list[Measured]:
        """All metrics that this machine provides, and stale markers of those that it no longer provides."""
        found = [("node_time_seconds", dict[str, str](), now_ms / 1000)]
        for reader in list(self._readers):
            try:
                found.extend(reader())
            except (OSError, RuntimeError, NotImplementedError, AttributeError):
                # A container or another system does not provide this metric, now or later.
                self._readers.remove(reader)
        samples = [Measured(self._canonical(name, labels), now_ms, float(value)) for name, labels, value in found]
        return samples + self._staleness.round({sample.canonical for sample in samples}, now_ms)

    def missed(self, now_ms: int) -> list[Measured]:
        """Empty: a missed round leaves a gap."""
        return []

    def _canonical(self, name: str, labels: dict[str, str]) -> bytes:
        key = (name, tuple(labels.values()))
        canonical = self._labels.get(key)
        if canonical is None:
            shown = {label: value for label, value in labels.items() if value}
            canonical = self._labels[key] = canonical_labels({"__name__": name, **shown, **self._target})
        return canonical


def cpu() -> Iterator[Reading]:
    for number, times in enumerate(psutil.cpu_times(percpu=True)):
        for mode, seconds in times._asdict().items():
            if not mode.startswith("guest"):  # user and nice already include it.
                yield "node_cpu_seconds_total", {"cpu": str(number), "mode": mode}, seconds


def memory() -> Iterator[Reading]:
    virtual, swap = psutil.virtual_memory()._asdict(), psutil.swap_memory()
    names = {
        "total": "MemTotal",
        "available": "MemAvailable",
        "free": "MemFree",
        "buffers": "Buffers",
        "cached": "Cached",
        "active": "Active",
        "inactive": "Inactive",
        "slab": "Slab",
        "shared": "Shmem",
    }
    for field, name in names.items():
        if field in virtual:
            yield f"node_memory_{name}_bytes", {}, virtual[field]
    yield "node_memory_SwapTotal_bytes", {}, swap.total
    yield "node_memory_SwapFree_bytes", {}, swap.free


def load() -> Iterator[Reading]:
    for name, value in zip(("node_load1", "node_load5", "node_load15"), os.getloadavg(), strict=True):
        yield name, {}, value


def disks() -> Iterator[Reading]:
    for device, io in psutil.disk_io_counters(perdisk=True).items():
        labels = {"device": device}
        yield "node_disk_reads_completed_total", labels, io.read_count
        yield "node_disk_writes_completed_total", labels, io.write_count
        yield "node_disk_read_bytes_total", labels, io.read_bytes
        yield "node_disk_written_bytes_total", labels, io.write_bytes
        yield "node_disk_read_time_seconds_total", labels, io.read_time / 1000
        yield "node_disk_write_time_seconds_total", labels, io.write_time / 1000


def network() -> Iterator[Reading]:
    for device, io in psutil.net_io_counters(pernic=True).items():
        labels = {"device": device}
        yield "node_network_receive_bytes_total", labels, io.bytes_recv
        yield "node_network_transmit_bytes_total", labels, io.bytes_sent
        yield "node_network_receive_packets_total", labels, io.packets_recv
        yield "node_network_transmit_packets_total", labels, io.packets_sent
        yield "node_network_receive_errs_total", labels, io.errin
        yield "node_network_transmit_errs_total", labels, io.errout
        yield "node_network_receive_drop_total", labels, io.dropin
        yield "node_network_transmit_drop_total", labels, io.dropout


def filesystems() -> Iterator[Reading]:
    for part in psutil.disk_partitions(all=False):
        try:
            space = os.statvfs(part.mountpoint)
        except OSError:
            continue  # The process has no permission, or the file system was unmounted since it was listed.
        labels = {"device": part.device, "fstype": part.fstype, "mountpoint": part.mountpoint}
        yield "node_filesystem_size_bytes", labels, space.f_blocks * space.f_frsize
        yield "node_filesystem_free_bytes", labels, space.f_bfree * space.f_frsize
        yield "node_filesystem_avail_bytes", labels, space.f_bavail * space.f_frsize
        yield "node_filesystem_files", labels, space.f_files
        yield "node_filesystem_files_free", labels, space.f_ffree


def system() -> Iterator[Reading]:
    stats = psutil.cpu_stats()
    yield "node_boot_time_seconds", {}, psutil.boot_time()
    yield "node_context_switches_total", {}, stats.ctx_switches
    yield "node_intr_total", {}, stats.interrupts
