#pragma once

// Marks functions compiled for the host and, under nvcc, for the device too.
#if defined(__CUDACC__)
#define OCTAVO_HOST_DEVICE __host__ __device__
#else
#define OCTAVO_HOST_DEVICE
#endif
