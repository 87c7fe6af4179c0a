"""The command line: `cubepy inspect`, `run`, `demo`, `devices`, `doctor`, `explain`, `bench`."""
