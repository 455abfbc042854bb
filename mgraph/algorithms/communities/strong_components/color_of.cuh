// Colors of vertices: mixed ids, so that the largest ones lie anywhere in the graph.
#pragma once

constexpr u32 no_vertex = ~0u;
constexpr u32 no_color = 0;

DEVICE u32 mixed(u32 x) {  // a bijection
    x ^= x >> 16, x *= 0x7feb352du;
    x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}
DEVICE u32 color_of(u32 id) { return mixed(id) ^ mixed(no_vertex); }  // different for each vertex, and not no_color
