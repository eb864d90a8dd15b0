"""After the training: scores, a copy of the result on a NAS or in a bucket, a push to the Hub.

`request` says what is wanted, `check` finds before the run whatever would be in the way after it,
and `afterwards` does it: one node, when the run has finished. The trained weights stay where they
are, whatever fails, and each failure is told with the command that repeats the part.
"""
