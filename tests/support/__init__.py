"""Helpers shared by tests: tiny models, tiny data, and ranks on loopback."""
