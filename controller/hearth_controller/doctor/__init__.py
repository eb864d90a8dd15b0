"""Doctor and verify: checks over the facts of a cluster's nodes, each problem with its fix. Pure.

node.py      facts about a node, and about the cluster
finding.py   check, and its result
gpus.py      checks of the driver and of other programs on the GPUs
software.py  checks of packages, code, models and data
links.py     checks of addresses, links and paths between the nodes
system.py    checks of the machine, and of the stages of provisioning
examine.py   doctor: all checks, from answers to one object (docs/doctor.schema.json)
table.py     its results as text
verify.py    verify: a node's steps, a few of the checks with an all-reduce, and their table
single.py    verify of each node alone
message.py   findings of any task on the nodes as one message
__main__.py  lists the checks
"""
