"""Doctor: problems of the nodes of a cluster, each with its fix. Pure but for examine.py.

finding.py   check, and its result
node.py      facts about a node, and about the cluster
gpus.py      checks of the driver and of other programs on the GPUs
software.py  checks of packages, code, models and data
links.py     checks of addresses, links and paths between the nodes
system.py    checks of the machine, and of the stages of provisioning
checks.py    all checks of the modules, in display order
examine.py   from answers to one object (docs/doctor.schema.json), in a file and as text
table.py     results as text
message.py   findings of any task on the nodes as one message
"""
