"""Edge: what others call (PodResources, node service, HTTP, control socket, queue API and webhook), and clients of these."""
