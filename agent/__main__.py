"""`python -m agent` is the `pinfold` command."""

from agent.cli import main

main()
