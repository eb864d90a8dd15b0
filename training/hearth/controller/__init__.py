"""What Ansible's plugins need on the computer that plays. Never goes to a node."""
