// The memory of fresh outputs: slabs that return when their last user lets go, and are used again.
//
// Reuse is what makes a fresh copy fast: a page that is new to the process costs several times the
// copying of its bytes. What lies idle is bounded by `limit`. All functions are thread-safe.
#pragma once

#include <cstddef>

namespace splitops {

struct Slab {
    char *data = nullptr;  // aligned to 64 bytes, to 2 MiB from 2 MiB on
    std::size_t capacity = 0;
    bool fresh = false;  // its pages have not been written yet
};

struct PoolCounters {
    std::size_t limit, idle_bytes, idle_blocks, used_bytes, used_blocks, reuses, allocations;
};

namespace memory_pool {

Slab acquire(std::size_t bytes);  // throws std::bad_alloc
void release(Slab slab) noexcept;
void set_limit(std::size_t bytes);  // of the idle bytes; what is over it is freed at once
void free_idle();
PoolCounters counters();

}  // namespace memory_pool
}  // namespace splitops
