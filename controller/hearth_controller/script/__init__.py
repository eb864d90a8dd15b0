"""Runs of a person's own script: the request, the files for the nodes, the record.

tree.py     files to transfer, by checksum
request.py  from extra variables to a run
run.py      the run and its file, run.yml
"""
