"""gRPC servers: limit calls, messages and connections, check tokens, report health and map errors."""
