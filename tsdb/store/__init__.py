"""The store: replays the log into heads with workers, computes readiness, and serves Reader over the heads."""
