"""The machines of an inventory: nodes, host keys, variables. Independent of Ansible."""
