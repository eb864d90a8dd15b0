"""From typed words to a run on the nodes: resume point, memory, prediction."""
