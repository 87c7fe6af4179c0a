"""`cubepy demo`: kernels on a photograph, verified, timed, and a report."""
