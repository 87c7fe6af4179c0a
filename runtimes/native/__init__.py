"""What runtimes share: the linker of machine code, the thread pool and the host processor."""
