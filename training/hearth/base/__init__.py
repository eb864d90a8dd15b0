"""Helpers that any package may use: errors, files, locks, text, heavy imports, the Hub's client."""
