"""The commands, one module a room; heavy packages are imported only when a command runs."""
