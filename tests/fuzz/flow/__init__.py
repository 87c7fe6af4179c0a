"""Programs that Python itself runs as well, on numbers with types: a model of control flow."""
