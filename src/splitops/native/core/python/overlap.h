// Whether arrays can share memory, decided by the bounds of their addresses.
#pragma once

#include "python/numpy_api.h"

#include <cstdint>
#include <vector>

namespace splitops {

struct Bounds {
    std::intptr_t low;
    std::intptr_t high;  // past the last byte
};

// Arrays as stretches of memory that they share with no other of these arrays. Neighbours in memory that come one
// after the other, as in a list of arrays made in turn, are one stretch: a hundred thousand need no sorting.
class Stretches {
  public:
    // Arrays that lie up to `gap` bytes apart are one stretch. With a gap of 0 nothing but their own bytes lies in it.
    explicit Stretches(std::intptr_t gap) : gap_(gap) {}

    void add(Bounds bounds) {
        if (!stretches_.empty()) {
            Bounds &last = stretches_.back();
            if (bounds.low >= last.high && bounds.low - last.high <= gap_) {
                last.high = bounds.high;
                return;
            }
        }
        stretches_.push_back(bounds);
    }

    // The array must have elements. False: they may lie on one another.
    bool add(PyArrayObject *array);

    // True proves that no two of the arrays share memory; false proves nothing. Ends the adding.
    bool are_disjoint();

  private:
    std::intptr_t gap_;
    std::vector<Bounds> stretches_;
};

Bounds bounds_of(PyArrayObject *array);

// True proves that no array of `out` shares memory with `data`, with another one, or one of its elements with
// another; false proves nothing: interleaved arrays have bounds that cross.
bool are_disjoint(PyArrayObject *data, PyArrayObject *const *out, std::size_t count);

}  // namespace splitops
