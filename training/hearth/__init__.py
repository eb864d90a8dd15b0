"""Hearth: the unequal GPU machines of a home as one training cluster."""

import os

__version__ = "0.1.0"

# CUDA counts the fastest card first otherwise, and a computer's cards may be unlike: a rank is to
# be on the card that the driver lists at its number, with the memory that it was judged by.
os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
