"""`tsdb history`: create, check and inspect history, without a server of ours."""
