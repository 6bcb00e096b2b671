"""What `specroute demo` needs to run real engines on the machine it is started on."""
