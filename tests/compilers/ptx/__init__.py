"""An interpreter of PTX, which shows what NVVM made of CUDA C where there is no GPU."""
