"""What is wrong with the nodes of a cluster, and the one thing to do about each. Pure.

finding.py   what a check says
node.py      what is known of a node, and of all of them
gpus.py      checks of the driver and of who uses the GPUs
software.py  checks of packages, code, models and data
network.py   checks of addresses, links and paths between the nodes
system.py    checks of the machine, and of what provisioning promised
checks.py    all checks, in the order in which they are shown
examine.py   what they add up to, as docs/doctor.schema.json describes it
table.py     the same for people
"""
