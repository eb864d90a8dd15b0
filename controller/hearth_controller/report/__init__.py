"""The report of a run: one page, `report.html`, made from the files that the run left.

windows.py  the steps between two lines of metrics, and their sums
story.py    what `metrics.jsonl` tells
read.py     from the run's folder to all that is known of it
figures.py  from the story to plots; svg.py, ink.py and colours.css make them fit for the page
repeat.py   the command that repeats the run
page.py     all of it as HTML, by page.html.j2
write.py    the page into the run's folder

For the controller: no node gets it. Without torch.
"""
