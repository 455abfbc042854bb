// Binary searches in constant arrays.
#pragma once

// Returns the first index in [low, high) whose element is not less than (upper: greater than) `value`, or `high`.
template <class A, class V> DEVICE i64 lower_bound(A a, i64 low, i64 high, V value) {
    while (low < high) {
        i64 middle = low + ((high - low) >> 1);
        if (a[middle] < value) low = middle + 1;
        else high = middle;
    }
    return low;
}
template <class T, class V> DEVICE i64 upper_bound(const T* a, i64 low, i64 high, V value) {
    while (low < high) {
        i64 middle = low + ((high - low) >> 1);
        if (value < a[middle]) high = middle;
        else low = middle + 1;
    }
    return low;
}

// Returns the least key, src << 32 | dst, of a row and those after it; row 2**32 is behind all.
DEVICE u64 first_key_of(i64 row) { return row >> 32 ? ~(u64)0 : (u64)row << 32; }

// Returns the first index of a[0, n) whose element is not below `value`, by galloping search from `hint`.
template <class A, class T> DEVICE i64 lower_bound_near(A a, i64 n, i64 hint, T value) {
    i64 low = hint, high = hint;
    if (hint < n && a[hint] < value) {
        for (i64 step = 1; high < n && a[high] < value; step *= 2) low = high + 1, high = lesser(n, high + step);
    } else {
        for (i64 step = 1; low > 0 && !(a[low - 1] < value); step *= 2)
            high = low - 1, low = greater((i64)0, low - step);
    }
    return lower_bound(a, low, high, value);
}
