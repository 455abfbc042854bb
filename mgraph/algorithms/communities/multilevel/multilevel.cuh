// The kernels of multilevel methods, which the ranks launch step by step: vertices move between communities, parts of
// communities are joined, and communities become vertices.
#pragma once
#include "algorithms/communities/multilevel/aggregation.cuh"
#include "algorithms/communities/multilevel/local_moving.cuh"
#include "algorithms/communities/multilevel/sweep.cuh"
