"""gRPC servers: limits of calls, messages and connections, tokens, health and the mapping of errors."""
