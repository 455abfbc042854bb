// The View contract, every structure's interface for kernels. A View is a small copyable struct of 8-byte fields with
//   degree(v)                  number of a row's edges; O(1)
//   units(v)                   number of a row's independent pieces, the grain of load balancing; O(1)
//   visit(tile, v, unit, f)    f(dst, slot, live) by all lanes of a tile of any width, until f returns true to all of
//                              them; a lane without an edge calls f too, with live false and any dst
//   weight(slot)               of a live slot; 1 without weights
//   sorted                     constexpr: true if visiting the units in order meets a row's dst in ascending order
//   find(v, dst)               the slot of an edge, or -1, by one lane: O(log degree), O(1) by hashing, or O(degree)
//   fetch_start(v), fetch(v)   optional: prefetch on a CPU a row's start, and its first data
//   begins(v), ends(v), id_at(slot)  optional: row v is the slots from begins(v) to before ends(v), which is
//                              begins(v + 1); id_at returns ~0 for a slot without an edge
//   read_ids(tile, v, unit, f) optional: f(ids, slot) with several ids of each lane, ~0 for none; ids[j] is at
//                              slot + j * tile.size()
#pragma once

// Calls f(dst, slot_u, slot_v, live) for the common neighbours of rows u and v, by all lanes of the tile together,
// until f returns true to all of them; a lane without one calls f too, with live false. The lanes share the shorter
// row, and each searches its edges in the other row: by binary search in sorted rows, else by hashing or a scan.
template <class View, class Tile, class F> DEVICE void intersect(const View& graph, Tile tile, i64 u, i64 v, F f) {
    bool swapped = graph.degree(v) < graph.degree(u), done = false;
    i64 shorter = swapped ? v : u, longer = swapped ? u : v, units = graph.units(shorter);
    for (i64 unit = 0; unit < units && !done; ++unit)
        graph.visit(tile, shorter, unit, [&](u32 id, i64 slot, bool live) {
            i64 other = live ? graph.find(longer, id) : -1;
            tile.sync();
            return done = f(id, swapped ? other : slot, swapped ? slot : other, other >= 0);
        });
}

namespace contract {  // NVRTC has no <type_traits>

template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;
template <class T> T some();  // for unevaluated operands

struct None;
template <class... T> struct Void {
    using type = void;
};
template <template <class> class Of, class View, class = void> struct TypeOf {
    using type = None;
};
template <template <class> class Of, class View> struct TypeOf<Of, View, typename Void<Of<View>>::type> {
    using type = Of<View>;
};
template <template <class> class Of, class View, class T> constexpr bool gives =
    same<typename TypeOf<Of, View>::type, T>;

template <class View> using Degree = decltype(some<const View&>().degree(i64()));
template <class View> using Units = decltype(some<const View&>().units(i64()));
template <class View> using Weight = decltype(some<const View&>().weight(i64()));
template <class View> using Find = decltype(some<const View&>().find(i64(), u32()));
template <class View> using Sorted = decltype(View::sorted);

struct Visitor {
    template <class Id, class Slot, class Live> DEVICE bool operator()(Id, Slot, Live) const {
        static_assert(same<Id, u32> && same<Slot, i64> && same<Live, bool>,
                      "View: visit calls f(u32 dst, i64 slot, bool live)");
        return false;
    }
};
template <class View> using Visit = decltype(some<const View&>().visit(Tile<32>(), i64(), i64(), Visitor()));

// Its type is deduced, and so its body compiled, but no code is generated.
template <class View, class Tile> DEVICE auto use(const View& graph, Tile tile) {
    graph.visit(tile, 0, 0, Visitor());
    intersect(graph, tile, 0, 0, [](u32, i64, i64, bool) { return false; });
    return true;
}
template <class View, class Tile> constexpr bool works = same<decltype(use(some<const View&>(), some<Tile>())), bool>;

}  // namespace contract

// Instantiated for every structure by read.cuh: a View without a part of the contract stops the compiler with a
// sentence about it.
template <class View> struct AssertView {
    static_assert(__is_trivially_copyable(View), "View: a struct that can be copied by its bytes");
    static_assert(contract::gives<contract::Degree, View, i64> || contract::gives<contract::Degree, View, u32>,
                  "View: i64 or u32 degree(i64 v) const");
    static_assert(contract::gives<contract::Units, View, i64>, "View: i64 units(i64 v) const");
    static_assert(contract::gives<contract::Weight, View, f32>, "View: f32 weight(i64 slot) const");
    static_assert(contract::gives<contract::Find, View, i64>, "View: i64 find(i64 v, u32 dst) const");
    static_assert(contract::gives<contract::Sorted, View, const bool>, "View: static constexpr bool sorted");
    static_assert(contract::gives<contract::Visit, View, void>,
                  "View: void visit(Tile tile, i64 v, i64 unit, F f) const");
    static_assert(contract::works<View, Tile<1>> && contract::works<View, Tile<8>> && contract::works<View, Tile<32>>);
    static constexpr bool value = View::sorted || true;  // requires `sorted` to be a constant
};
