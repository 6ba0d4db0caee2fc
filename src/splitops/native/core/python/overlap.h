// Checks whether arrays may share memory, by the bounds of their addresses.
#pragma once

#include "python/numpy_api.h"

#include <cstdint>
#include <vector>

namespace splitops {

struct Bounds {
    std::intptr_t low;
    std::intptr_t high;  // past the last byte
};

// Memory ranges of arrays that are checked to be disjoint. Arrays that follow each other in memory and in the list,
// such as those created one after the other, form one range, so that a hundred thousand need no sorting.
class Stretches {
  public:
    // Arrays up to `gap` bytes apart form one range. With a gap of 0, it contains only their own bytes.
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

    // The array must not be empty. False: its elements may overlap.
    bool add(PyArrayObject *array);

    // True if certainly no two of the arrays share memory. No array can be added after that.
    bool are_disjoint();

  private:
    std::intptr_t gap_;
    std::vector<Bounds> stretches_;
};

Bounds bounds_of(PyArrayObject *array);

// True if certainly no array of `out` shares memory with `data` or with another one, and none overlaps itself.
// Interleaved arrays give false, because their bounds overlap.
bool are_disjoint(PyArrayObject *data, PyArrayObject *const *out, std::size_t count);

}  // namespace splitops
