"""The model: fetching, checking, loading, training interface, merging."""
