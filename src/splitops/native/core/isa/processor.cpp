#include "isa/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace splitops {
namespace {

#if defined(__x86_64__)

constexpr unsigned kAvxState = 0x06;     // bits of XCR0: the system saves these registers
constexpr unsigned kAvx512State = 0xE6;

unsigned saved_state() {
    unsigned low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

Processor ask() {
    Processor found;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return found;
    found.pclmul = (c & bit_PCLMUL) != 0 && (c & bit_SSE4_1) != 0;
    const unsigned state = (c & bit_OSXSAVE) != 0 ? saved_state() : 0;
    const bool avx = (c & bit_AVX) != 0 && (state & kAvxState) == kAvxState;
    if (!avx || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return found;
    found.avx2 = (b & bit_AVX2) != 0;
    const bool foundation = (b & bit_AVX512F) != 0 && (state & kAvx512State) == kAvx512State;
    const unsigned both = bit_AVX512BW | bit_AVX512VL;
    found.avx512 = foundation && (b & both) == both && (c & bit_AVX512VBMI) != 0;
    found.vpclmul = foundation && found.pclmul && (c & bit_VPCLMULQDQ) != 0;
    return found;
}

#else

Processor ask() { return {}; }

#endif

}  // namespace

const Processor &processor() {
    static const Processor found = ask();
    return found;
}

}  // namespace splitops
