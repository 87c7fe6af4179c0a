"""The OpenCL runtime: devices of any vendor through pyopencl."""
