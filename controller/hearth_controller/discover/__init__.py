"""Find the machines of a home and describe them as an inventory: `hearth init`."""
