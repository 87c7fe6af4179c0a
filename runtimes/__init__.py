"""Runtimes: each loads artifacts, owns memory and launches kernels on one kind of device.

They know no compiler. Import them as `cubepy.runtimes`, never as `runtimes`.
"""
