// Features that the processor has and the system supports. They are queried here because the libraries of some
// compilers do not know all of them.
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
