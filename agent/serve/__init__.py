"""Edge: what others call. PodResources, HTTP, control socket."""
