// Programs that ranks run together, phase by phase: see kernels/platform/world.cuh.
#pragma once
#include "kernels/platform/world.cuh"
#ifdef __CUDACC__
#include "kernels/platform/world_cuda.cuh"
#else
#include "kernels/platform/world_host.h"
#endif
