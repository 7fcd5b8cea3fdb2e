"""Wire formats of the gRPC services, generated from the .proto files here by `python -m agent.proto.generate`."""
