"""The CUDA runtime: devices of NVIDIA through cuda-bindings."""
