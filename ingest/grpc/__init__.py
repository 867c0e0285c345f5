"""The gRPC protocol of the gateway decodes `Ingest.Write`, from wire bytes to rows."""
