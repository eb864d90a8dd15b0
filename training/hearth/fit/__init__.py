"""Memory check before a model is downloaded: does it fit each node? Only `by_hand` needs torch."""
