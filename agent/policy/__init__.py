"""What to do: pure decisions over the values of `agent.model`. No I/O, no clock, no globals."""
