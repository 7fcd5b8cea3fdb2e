"""What turns a checkout into something to hand out: the man page, shell completion, and a bundle for nodes without a network."""
