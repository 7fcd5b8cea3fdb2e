"""Hierarchical queue accounting by KAI-Scheduler's rules. Pure: its server sits in `agent.serve`."""
