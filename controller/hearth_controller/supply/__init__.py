"""Downloads for all nodes, fetched once on the controller: wheels."""
