"""The HIP compiler: KernelIR to HIP C++, for GPUs of AMD."""
