"""What people start: the command line, the server, batches, and plug-ins for other libraries."""
