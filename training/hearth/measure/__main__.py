"""Earlier name of `hearth.node`, until no play calls it."""

import runpy
import sys

_NAMES = {"node": "prepare", "look": "inspect"}

if __name__ == "__main__":
    sys.argv[1:2] = [_NAMES.get(each, each) for each in sys.argv[1:2]]
    runpy.run_module("hearth.node", run_name="__main__", alter_sys=True)
