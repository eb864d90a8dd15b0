"""NICs, addresses, netplan, NetworkManager, hosts file, firewall, ARP."""
