"""Hierarchical queue accounting as pure rules: tree, fair share, order, reclaim, capacity, resize admission, ledger.

Same decisions as KAI-Scheduler's proportion plugin and its pods/resize check (profiles in `agent.queues.options`).
Files, servers and clocks are elsewhere.
"""
