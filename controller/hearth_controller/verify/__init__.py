"""Verification of a cluster: each node's steps, their results, and what a person is shown."""
