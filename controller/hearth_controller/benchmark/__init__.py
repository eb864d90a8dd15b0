"""Whether the cluster is faster than its nodes alone: what is measured, and what came of it. Pure.

record.py   what was asked for, what has been measured, and the file that keeps it
order.py    which nodes train next, and how long the rest takes
took.py     from the metrics of a run to what its counted steps took
figures.py  speed-up and efficiency of each configuration
compare.py  the benchmark before this one, what is slower since, and what changed meanwhile
advice.py   the learning rate that a larger step implies
words.py    all of this for a person
drawing.py  all of this as a picture
"""
