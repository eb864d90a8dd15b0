"""What an inventory says about machines. For the controller; knows nothing of Ansible itself."""
