"""The Metal runtime: GPUs of Apple through pyobjc."""
