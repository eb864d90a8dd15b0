"""The NVIDIA driver of each machine: cards by PCI id, one decision over the cluster, packages."""
