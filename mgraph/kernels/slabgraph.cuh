// All of SlabGraph's kernels, in one program: one compilation.
#pragma once
#include "slabgraph_prepare.cuh"
#include "slabgraph_commit.cuh"
#include "slabgraph_pool.cuh"
#include "slabgraph_vertices.cuh"
