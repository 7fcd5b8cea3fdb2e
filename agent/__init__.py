"""pinfold: decides which CPUs and which NUMA memory every container of a node gets, and holds it to that."""

__version__ = "0.1.0"
