"""The rows of the suite, a module for each table; each has `rows()`."""
