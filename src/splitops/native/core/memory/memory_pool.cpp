#include "memory/memory_pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdlib>
#include <list>
#include <map>
#include <mutex>
#include <new>

#include "machine.h"

namespace splitops::memory_pool {
namespace {

constexpr std::size_t kLine = splitops::kLine;
constexpr std::size_t kHugePage = splitops::kHugePage;

struct Idle {
    std::multimap<std::size_t, std::list<Slab>::iterator> by_capacity;
    std::list<Slab> by_age;  // oldest first
};

struct State {
    std::mutex mutex;
    Idle idle;
    PoolCounters counters{};
};

// Never destroyed, because arrays may outlive static objects.
State &state() {
    static State *instance = [] {
        State *created = new State;
        // A child process must not inherit a mutex that another thread of its parent has locked.
        pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                       [] { state().mutex.unlock(); });
        return created;
    }();
    return *instance;
}

// Four capacities per doubling up to 2 MiB, then whole huge pages: at most a quarter is unused.
std::size_t round_up(std::size_t bytes) {
    if (bytes > SIZE_MAX - kHugePage)
        throw std::bad_alloc();
    std::size_t step = kHugePage;
    if (bytes < kHugePage) {
        step = kLine;
        while (step * 8 <= bytes)
            step *= 2;
    }
    return bytes == 0 ? step : (bytes + step - 1) / step * step;  // an empty slab would never be in excess
}

Slab allocate(std::size_t capacity) {
    Slab slab;
    slab.capacity = capacity;
    slab.fresh = true;
    if (capacity < kHugePage) {
        slab.data = static_cast<char *>(std::aligned_alloc(kLine, capacity));
        if (slab.data == nullptr)
            throw std::bad_alloc();
        return slab;
    }
    // One more huge page than needed, so that an aligned range can be cut out of it.
    const std::size_t length = capacity + kHugePage;
    void *mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        throw std::bad_alloc();
    char *start = static_cast<char *>(mapped);
    const std::size_t head = (kHugePage - reinterpret_cast<std::uintptr_t>(start) % kHugePage) % kHugePage;
    if (head != 0)
        munmap(start, head);
    if (head != kHugePage)
        munmap(start + head + capacity, kHugePage - head);
    slab.data = start + head;
#ifdef MADV_HUGEPAGE
    madvise(slab.data, capacity, MADV_HUGEPAGE);  // only a hint, which saves page faults
#endif
    return slab;
}

void deallocate(const Slab &slab) noexcept {
    if (slab.capacity < kHugePage)
        std::free(slab.data);
    else
        munmap(slab.data, slab.capacity);
}

// Moves the oldest idle slabs in excess of `limit` to `out`, to be freed outside the lock.
void take_excess(State &s, std::size_t limit, std::list<Slab> &out) {
    while (s.counters.idle_bytes > limit) {
        const auto oldest = s.idle.by_age.begin();
        auto range = s.idle.by_capacity.equal_range(oldest->capacity);
        for (auto it = range.first; it != range.second; ++it) {
            if (it->second == oldest) {
                s.idle.by_capacity.erase(it);
                break;
            }
        }
        s.counters.idle_bytes -= oldest->capacity;
        s.counters.idle_blocks -= 1;
        out.splice(out.end(), s.idle.by_age, oldest);
    }
}

void shrink(std::size_t limit, bool keep_limit) {
    std::list<Slab> excess;
    {
        State &s = state();
        std::lock_guard<std::mutex> lock(s.mutex);
        if (!keep_limit)
            s.counters.limit = limit;
        take_excess(s, limit, excess);
    }
    for (const Slab &slab : excess)
        deallocate(slab);
}

}  // namespace

Slab acquire(std::size_t bytes) {
    const std::size_t capacity = round_up(bytes);
    State &s = state();
    {
        std::lock_guard<std::mutex> lock(s.mutex);
        const auto found = s.idle.by_capacity.lower_bound(capacity);
        // A much larger slab is kept for a request of its size.
        if (found != s.idle.by_capacity.end() && found->first - capacity <= capacity / 4) {
            const auto entry = found->second;
            const Slab slab = *entry;
            s.idle.by_capacity.erase(found);
            s.idle.by_age.erase(entry);
            s.counters.idle_bytes -= slab.capacity;
            s.counters.idle_blocks -= 1;
            s.counters.used_bytes += slab.capacity;
            s.counters.used_blocks += 1;
            s.counters.reuses += 1;
            return slab;
        }
    }
    const Slab slab = allocate(capacity);
    std::lock_guard<std::mutex> lock(s.mutex);
    s.counters.used_bytes += capacity;
    s.counters.used_blocks += 1;
    s.counters.allocations += 1;
    return slab;
}

void release(Slab slab) noexcept {
    std::list<Slab> excess;
    bool kept = false;
    try {
        State &s = state();
        std::lock_guard<std::mutex> lock(s.mutex);
        s.counters.used_bytes -= slab.capacity;
        s.counters.used_blocks -= 1;
        if (slab.capacity <= s.counters.limit) {
            slab.fresh = false;
            const auto entry = s.idle.by_age.insert(s.idle.by_age.end(), slab);
            try {
                s.idle.by_capacity.emplace(slab.capacity, entry);
            } catch (...) {
                s.idle.by_age.erase(entry);
                throw;
            }
            kept = true;
            s.counters.idle_bytes += slab.capacity;
            s.counters.idle_blocks += 1;
            take_excess(s, s.counters.limit, excess);
        }
    } catch (const std::bad_alloc &) {
        // There is no memory for a list entry, so the slab is freed.
    }
    if (!kept)
        deallocate(slab);
    for (const Slab &old : excess)
        deallocate(old);
}

void set_limit(std::size_t bytes) { shrink(bytes, false); }

void free_idle() { shrink(0, true); }

PoolCounters counters() {
    State &s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    return s.counters;
}

}  // namespace splitops::memory_pool
