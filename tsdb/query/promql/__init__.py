"""PromQL reads of a querier: samples and labels from stores and history as one."""
