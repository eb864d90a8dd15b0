"""What a run leaves on disk while it trains: checkpoints and the history of its metrics."""
