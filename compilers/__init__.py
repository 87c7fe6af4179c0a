"""Compilers: each turns verified IR into an artifact for one kind of target.

They know no device and no runtime. Import them as `cubepy.compilers`, never as `compilers`.
"""
