"""Settings of an experiment: a store or querier of another version or with other settings, beside production."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, model_validator

from tsdb.config.types import AnyAddresses

# A label of DNS has at most 63 characters. Kubernetes adds the name of a set, a pod's number and a revision's hash.
NAME_CHARS_MAX = 40


def _name(text: str) -> str:
    if text and not (len(text) <= NAME_CHARS_MAX and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", text)):
        raise ValueError(
            f"{text!r} is not a DNS label of at most {NAME_CHARS_MAX} characters: a-z, 0-9 and inner hyphens, such as"
            " smaller-slices"
        )
    return text


class ExperimentFields(BaseModel):
    """The name of an experiment, and the addresses that it must not have."""

    experiment: Annotated[str, AfterValidator(_name)] = Field(
        "",
        description="Name of an experiment, a DNS label: this process runs beside production, whose queriers do not "
        "read it. Empty: production.",
    )
    production: AnyAddresses = Field(
        (),
        description="HOST:PORT[,HOST:PORT] of production's processes of this role: an experiment refuses to start at "
        "one of them. Only with experiment.",
    )

    @model_validator(mode="after")
    def _check_production(self) -> ExperimentFields:
        if self.production and not self.experiment:
            raise ValueError("production needs experiment: name the experiment too")
        return self
