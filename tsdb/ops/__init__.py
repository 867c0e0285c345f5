"""Parts that every process needs beside its work: metrics, logs, health, servers, credentials, an orderly shutdown."""
