"""What things are: immutable values without I/O. Imports nothing from the other rooms."""
