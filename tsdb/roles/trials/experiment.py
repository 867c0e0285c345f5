"""Checks of an experiment at its start."""

from __future__ import annotations

from tsdb.config.trials import ExperimentFields
from tsdb.config.types import HostPort, host_port
from tsdb.model.errors import ConfigMismatch
from tsdb.roles.servers import listens_at


def check_address(fields: ExperimentFields, listen: HostPort) -> None:
    """Raises ConfigMismatch (experiment_address) when callers of production would reach this experiment at `listen`."""
    for text in fields.production:
        if listens_at(listen, host_port(text)):
            raise ConfigMismatch(
                f"experiment {fields.experiment} listens at {listen}, and {text} of production leads there: give it"
                " another address, and in Kubernetes labels that no Service of production selects",
                reason="experiment_address",
            )
