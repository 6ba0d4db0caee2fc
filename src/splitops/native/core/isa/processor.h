// What the processor offers, and the system saves: asked of them, as not every compiler's library knows it.
#pragma once

namespace splitops {

struct Processor {
    bool avx2 = false;
    bool avx512 = false;   // F, BW, VL and VBMI
    bool pclmul = false;   // with SSE4.1
    bool vpclmul = false;  // with AVX-512 F
};

const Processor &processor();

}  // namespace splitops
