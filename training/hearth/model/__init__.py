"""The model: where it comes from, and what computes it.

source.py, fetch.py, folder.py, wheel.py, convert.py   from a name to a checked folder
code.py                   code that comes with a model: needed, and allowed to run
suits.py                  whether it suits what a run wants of it
seam.py                   what the trainer knows of a model
load.py                   which backend computes it here
sharded.py                each rank keeps a part of it (`parallel: fsdp`)
transformers_backend.py   Transformers + PEFT, anywhere
unsloth_backend.py        Unsloth, on NVIDIA GPUs
merge.py                  an adapter and its model become one
precision.py              which numbers all ranks compute with
"""
