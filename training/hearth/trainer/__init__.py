"""The training loop (`loop`) and the parts of a step; `stepper` says why any split is exact."""
