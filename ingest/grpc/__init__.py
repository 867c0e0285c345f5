"""The gRPC protocol of the gateway: `Ingest.Write`, from wire bytes to rows."""
