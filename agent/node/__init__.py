"""Edge: this machine. sysfs, state directory, cgroups, runtime, service manager."""
