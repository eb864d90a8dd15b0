"""Memory check before a model is downloaded: does it fit each node? Only `by_hand` needs torch.

estimate.py  estimated memory need of a rank, by part
capacity.py  memory available to a rank, from the facts of its node
misfits.py   the nodes that a model does not fit, and the settings that would make it fit
known.py     shape of a model from a preset or the cache, before the download
published.py shape of a model from the Hub
by_hand.py   the check for the computer that this runs on
catalogue.py table of the presets and the nodes that each of them fits
"""
