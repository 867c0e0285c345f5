"""Settings of a querier: give addresses and credentials of the stores, and limit reads."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field, SecretStr, model_validator

from tsdb.config.common import CommonSettings
from tsdb.config.promql import PromqlFields, UiFields
from tsdb.config.select import SelectFields
from tsdb.config.trials import ExperimentFields, ShadowFields
from tsdb.config.types import Addresses, AnyAddresses


class QuerierFields(BaseModel):
    """Addresses of a querier's stores, and the credentials for them."""

    stores: Addresses = Field(
        description="HOST:PORT[,HOST:PORT] of the stores; a name means all its addresses, and is resolved every 10 s."
    )
    store_tls: bool = Field(False, description="Use TLS for the connections to the stores.")
    store_tls_ca_file: Path | None = Field(
        None, description="PEM CA of the stores; without it the system's. Only with store_tls."
    )
    store_tls_cert_file: Path | None = Field(
        None, description="PEM client certificate for the stores. Only with store_tls and store_tls_key_file."
    )
    store_tls_key_file: Path | None = Field(None, description="PEM key of store_tls_cert_file.")
    store_token: SecretStr | None = Field(None, description="Bearer token for the stores.")
    store_token_file: Path | None = Field(
        None, description="File with the bearer token for the stores; read at the start."
    )

    @model_validator(mode="after")
    def _check_access(self) -> QuerierFields:
        if bool(self.store_tls_cert_file) != bool(self.store_tls_key_file):
            raise ValueError("store_tls_cert_file and store_tls_key_file go together: one of them is missing")
        if not self.store_tls and (self.store_tls_ca_file or self.store_tls_cert_file):
            raise ValueError("store_tls_* files need store_tls")
        if self.store_token and self.store_token_file:
            raise ValueError("store_token and store_token_file: give one of them")
        return self


class RulersFields(BaseModel):
    """The rulers that a querier asks."""

    rulers: AnyAddresses = Field(
        (),
        description="HOST:PORT[,HOST:PORT] of the HTTP ports of all rulers, whose groups /api/v1/rules and "
        "/api/v1/alerts show; a name means all its addresses. They are called with store_tls and store_token, as "
        "stores are.",
    )


class QuerierSettings(
    QuerierFields, RulersFields, ShadowFields, ExperimentFields, UiFields, PromqlFields, SelectFields, CommonSettings
):
    """All settings of the role `querier`."""
