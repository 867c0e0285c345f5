"""PromQL reads of a querier: combine samples and labels from stores and history."""
