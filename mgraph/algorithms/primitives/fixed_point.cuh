// Labels, and weights as whole numbers, whose sums do not depend on their order.
#pragma once

constexpr u32 no_label = ~0u;

// Returns a weight, or that of an edge, in units of 1 / unit; 1 if unit is 0.
DEVICE u64 fixed(f32 weight, f64 unit) { return unit == 0 ? 1 : (u64)((f64)weight * unit + 0.5); }
template <class View> DEVICE u64 fixed(const View& graph, i64 slot, f64 unit) {
    return unit == 0 ? 1 : fixed((f32)graph.weight(slot), unit);
}
