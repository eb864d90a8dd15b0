"""The model: fetching, checking, loading, training interface, merging.

fetch.py, folder.py, wheel.py, convert.py  from a name to a checked folder
code.py                                    a model's own Python code: needed, allowed to run
compatibility.py, packing_isolation.py     checks: run's settings; isolation in packed rows
backend.py                                 TrainableModel, the trainer's interface to a model
load.py                                    choice of the backend, and loading with it
sharded.py                                 weights sharded over all ranks (`parallel: fsdp`)
transformers_backend.py                    Transformers + PEFT, anywhere
unsloth_backend.py                         Unsloth, on NVIDIA GPUs
optimizer.py, precision.py                 one choice of each for all ranks
merge.py                                   merges an adapter into its model
"""
