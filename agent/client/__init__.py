"""For other programs: `connect` to a node's pinfold, and `watch` what it holds.

    from agent.client import connect, watch

    with connect() as node:
        print(node.stub.Status(StatusRequest()).state.node.shared_cpus)
        for now in watch(node):
            print(now.position.generation, sorted(pod.name for pod in now.pods.values()))

Messages are those of `agent.proto.node_v1_pb2`; the proto file beside it documents them.
"""

from agent.client.node import NODE_SOCKET, Connection, NodeNow, connect, watch

__all__ = ["NODE_SOCKET", "Connection", "NodeNow", "connect", "watch"]
