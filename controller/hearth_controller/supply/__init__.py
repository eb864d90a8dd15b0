"""What provisioning fetches once, on the controller, for all nodes: wheels and an installer."""
