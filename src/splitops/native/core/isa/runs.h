// Copies equally spaced runs of bytes one by one. Everything is inlined into its caller, so that it uses the
// instruction set for which the caller is compiled.
#pragma once

#include <cstring>

#include "copy/strips.h"

#define SPLITOPS_FORCE_INLINE inline __attribute__((always_inline))

namespace splitops {

struct Runs {
    char *target;
    Extent target_pitch;
    const char *source;
    Extent source_pitch;
    Extent run;
    Extent count;
};

template <Extent Size>
SPLITOPS_FORCE_INLINE void copy_fixed(char *target, const char *source) {
    if constexpr (Size % 32 == 0) {  // compilers inline memcpy with moves of 16 bytes even if wider ones exist
        typedef char Wide __attribute__((vector_size(32), aligned(1), may_alias));
        for (Extent i = 0; i < Size; i += 32)
            *reinterpret_cast<Wide *>(target + i) = *reinterpret_cast<const Wide *>(source + i);
    } else {
        std::memcpy(target, source, static_cast<std::size_t>(Size));
    }
}

// Size <= bytes <= 2 * Size, as two moves that may overlap.
template <Extent Size>
SPLITOPS_FORCE_INLINE void copy_twice(char *target, const char *source, Extent bytes) {
    copy_fixed<Size>(target, source);
    copy_fixed<Size>(target + bytes - Size, source + bytes - Size);
}

SPLITOPS_FORCE_INLINE void copy_lines(char *target, const char *source, Extent bytes) {
    for (Extent i = 0; i < bytes - kLine; i += kLine)
        copy_fixed<kLine>(target + i, source + i);
    copy_fixed<kLine>(target + bytes - kLine, source + bytes - kLine);
}

struct Fixed {
    template <Extent Size>
    static SPLITOPS_FORCE_INLINE void copy(char *target, const char *source, Extent) {
        copy_fixed<Size>(target, source);
    }
};

struct Twice {
    template <Extent Size>
    static SPLITOPS_FORCE_INLINE void copy(char *target, const char *source, Extent bytes) {
        copy_twice<Size>(target, source, bytes);
    }
};

struct Lines {
    template <Extent>
    static SPLITOPS_FORCE_INLINE void copy(char *target, const char *source, Extent bytes) {
        copy_lines(target, source, bytes);
    }
};

template <class How, Extent Size>
SPLITOPS_FORCE_INLINE void each_run(const Runs &r) {
    char *target = r.target;
    const char *source = r.source;
    for (Extent i = 0; i < r.count; ++i, target += r.target_pitch, source += r.source_pitch)
        How::template copy<Size>(target, source, r.run);
}

// Size / 2 <= run <= Size: each run except the last is copied with bytes that follow it, which the next run overwrites.
template <Extent Size>
SPLITOPS_FORCE_INLINE void copy_overlapping(const Runs &r) {
    each_run<Fixed, Size>({r.target, r.target_pitch, r.source, r.source_pitch, r.run, r.count - 1});
    copy_twice<Size / 2>(r.target + (r.count - 1) * r.target_pitch, r.source + (r.count - 1) * r.source_pitch, r.run);
}

// One loop for each class of lengths, so that the length is not tested for each run.
SPLITOPS_FORCE_INLINE void copy_runs_inline(const Runs &r) {
    switch (r.run) {
        case 1: return each_run<Fixed, 1>(r);
        case 2: return each_run<Fixed, 2>(r);
        case 4: return each_run<Fixed, 4>(r);
        case 8: return each_run<Fixed, 8>(r);
        case 16: return each_run<Fixed, 16>(r);
        case 32: return each_run<Fixed, 32>(r);
        case 64: return each_run<Fixed, 64>(r);
        default: break;
    }
    if (r.run < 32 && r.target_pitch == r.run && r.source_pitch >= r.run && r.count > 0)
        return r.run < 4    ? copy_overlapping<4>(r)
               : r.run < 8  ? copy_overlapping<8>(r)
               : r.run < 16 ? copy_overlapping<16>(r)
                            : copy_overlapping<32>(r);
    if (r.run < 4)
        each_run<Twice, 2>(r);
    else if (r.run < 8)
        each_run<Twice, 4>(r);
    else if (r.run < 16)
        each_run<Twice, 8>(r);
    else if (r.run < 32)
        each_run<Twice, 16>(r);
    else if (r.run < 64)
        each_run<Twice, 32>(r);
    else if (r.run <= kCallBytes)
        each_run<Lines, 0>(r);
    else
        for (Extent i = 0; i < r.count; ++i)
            std::memcpy(r.target + i * r.target_pitch, r.source + i * r.source_pitch, static_cast<std::size_t>(r.run));
}

}  // namespace splitops
