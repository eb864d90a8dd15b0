"""The model: where it comes from, and what computes it.

source.py, fetch.py, folder.py, wheel.py, convert.py   from a name to a checked folder
seam.py                   what the trainer knows of a model
load.py                   which backend computes it here
transformers_backend.py   Transformers + PEFT, anywhere
unsloth_backend.py        Unsloth, on NVIDIA GPUs
precision.py              which numbers all ranks compute with
"""
