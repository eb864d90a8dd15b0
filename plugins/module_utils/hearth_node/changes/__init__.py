"""The journal of changes on a machine, so that they can be undone."""
