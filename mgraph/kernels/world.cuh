// Programs that ranks run together, phase by phase: see kernels/world_common.cuh.
#pragma once
#include "kernels/world_common.cuh"
#ifdef __CUDACC__
#include "kernels/platform/world_cuda.cuh"
#else
#include "kernels/waiting.h"

#include "kernels/platform/world_host.h"
#endif
