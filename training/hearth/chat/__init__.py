"""Talk to the result of a run: base model and trained weights side by side, or as an endpoint."""
