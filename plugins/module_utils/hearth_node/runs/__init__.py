"""Runs on a node: their digest, leftovers and TensorBoard."""
