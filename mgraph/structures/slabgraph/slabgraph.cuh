// All of SlabGraph's kernels as one program, for a single compilation.
#pragma once
#include "structures/slabgraph/prepare.cuh"
#include "structures/slabgraph/commit.cuh"
#include "structures/slabgraph/pool.cuh"
#include "structures/slabgraph/vertices.cuh"
