// The kernels of maintained communities: changed arcs are applied to strengths, and communities are split.
#pragma once
#include "algorithms/communities/dynamic/deltas.cuh"
#include "algorithms/communities/dynamic/live.cuh"
#include "algorithms/communities/dynamic/region.cuh"
#include "algorithms/communities/dynamic/splits.cuh"
