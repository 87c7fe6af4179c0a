"""Seconds to import the module that is named on the command line."""

import importlib
import sys
import time

if __name__ == "__main__":
    BEGIN = time.perf_counter()
    importlib.import_module(sys.argv[1])
    END = time.perf_counter()
    from bench.children.process import print_seconds

    print_seconds(BEGIN, END)
