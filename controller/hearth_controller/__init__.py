"""What works only on the computer that you type on. No node gets it, and it knows no Ansible."""
