"""Whether a model fits, said before it is downloaded. No torch but in `here`.

memory.py    what a rank needs, by part
room.py      what a rank has, from the facts of its node
verdict.py   what does not fit, and what would make it fit
known.py     the sizes of a model that is not there yet
published.py the same where the Hub can be asked
here.py      the same for the computer that this runs on
catalogue.py the presets, and which nodes each of them fits
"""
