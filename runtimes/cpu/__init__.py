"""The CPU runtime: loads machine code and runs cubes on the native thread pool."""
