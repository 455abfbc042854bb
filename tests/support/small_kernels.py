"""Kernels of a line, for tests of how kernels are compiled, kept and launched."""

FILL = """
struct Fill {
    static constexpr int lanes = 1;
    i64 n;
    i64* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) out[i] = VALUE;
    }
};
"""
COUNT = """
struct Count {
    static constexpr int lanes = 1;
    i64 n;
    i64* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) out[i] += i;
    }
};
"""
