"""The NVIDIA driver of a machine: cards, versions, repository keys."""
