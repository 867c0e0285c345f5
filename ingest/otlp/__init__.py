"""OTLP metrics: decodes ExportMetricsServiceRequest as protobuf or JSON, over HTTP and gRPC, and maps it as Prometheus
does."""
