// Pool of memory for new outputs: slabs return to it when their last user releases them, and are reused.
//
// Reuse makes copies fast: the first access to a new page costs several times the copying of its bytes. The idle bytes
// are limited by `limit`. All functions are thread-safe.
#pragma once

#include <cstddef>

namespace splitops {

struct Slab {
    char *data = nullptr;  // aligned to 64 bytes or, from 2 MiB on, to 2 MiB
    std::size_t capacity = 0;
    bool fresh = false;  // its pages have not been touched yet
};

struct PoolCounters {
    std::size_t limit, idle_bytes, idle_blocks, used_bytes, used_blocks, reuses, allocations;
};

namespace memory_pool {

Slab acquire(std::size_t bytes);  // throws std::bad_alloc
void release(Slab slab) noexcept;
void set_limit(std::size_t bytes);  // of idle bytes; the excess is freed at once
void free_idle();
PoolCounters counters();

}  // namespace memory_pool
}  // namespace splitops
