"""Edge: where pods and queue objects come from, and the API server."""
