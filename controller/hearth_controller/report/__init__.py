"""The report of a run: one page, `report.html`, generated from the run's files.

read.py     read the run's folder; its record is read by hearth.record.story
figures.py  plots
svg.py, colours.css  conversion of plots for the page
repeat.py   command that repeats the run
page.py     the report as HTML, from page.html.j2, and its file
closing.py  write the report at the end of a run, with its outcome, and sum the run up

It runs on the controller and needs no torch.
"""
