"""The controller's part of Hearth. It is not copied to nodes and does not import Ansible."""
