"""The commands of `pinfold`, one module each; `agent.cli` loads only the one that is called."""
