"""The pure logic behind Hearth's modules, by concern. Shipped to nodes: standard library only."""
