"""OTLP metrics: ExportMetricsServiceRequest as protobuf or JSON, over HTTP and gRPC, mapped as Prometheus maps it."""
