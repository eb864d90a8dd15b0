"""Folders of a workspace, held to checksums."""
