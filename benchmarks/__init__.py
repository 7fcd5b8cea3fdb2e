"""Measurements beside a peer or a plain implementation in the same run; run each with python -m benchmarks.NAME."""
