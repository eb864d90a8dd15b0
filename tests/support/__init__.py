"""What several tests need: tiny models, tiny data, and ranks on loopback."""
