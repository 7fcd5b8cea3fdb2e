"""Edge: where pods come from."""
