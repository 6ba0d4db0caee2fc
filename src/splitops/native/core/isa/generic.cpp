// For every processor of the architecture: plain C++, and on x86-64 stores that bypass the caches.
#include <cstring>

#include "isa/instruction_sets.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace splitops {
namespace {

void copy_runs(const Runs &r) { copy_runs_inline(r); }

void stream_lines(char *target, const char *source, Extent bytes) {
#if defined(__SSE2__)
    for (Extent i = 0; i < bytes; i += 16)
        _mm_stream_si128(reinterpret_cast<__m128i *>(target + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i *>(source + i)));
#else
    std::memcpy(target, source, static_cast<std::size_t>(bytes));
#endif
}

}  // namespace

InstructionSet generic() { return {.name = "generic", .copy_runs = copy_runs, .stream_lines = stream_lines}; }

}  // namespace splitops
