"""Files that a run writes while it trains: checkpoints and the history of its metrics."""
