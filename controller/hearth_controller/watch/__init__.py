"""Following a run on a node: probes of its supervisor, the live progress line, its log."""
