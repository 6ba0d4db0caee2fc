// Writes past the caches while reading ahead, for the kernels of short runs.
#pragma once

#include <cstdint>
#include <cstring>

#include "copy/strided_copy.h"
#include "machine.h"

namespace splitops {

constexpr Extent kCallBytes = 16 * kLine;   // from this size on, the cost of calling memcpy is negligible
constexpr Extent kStageBytes = 16 * kLine;  // bytes of a part that are collected before they are streamed

inline Extent misalignment(const char *pointer) {
    return static_cast<Extent>(reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(kLine));
}

// A memcpy without a function call for a few bytes.
void copy_plain(char *target, const char *source, Extent bytes);

// Prefetches what is read next while something else is written, so that reading and writing overlap: a number of rows
// of `span` bytes.
class Ahead {
  public:
    Ahead() = default;
    Ahead(const char *row, Extent pitch, Extent span, Extent rows)
        : at_(row), left_(span), span_(span), skip_(pitch - span), rows_(span > 0 ? rows : 0) {}

    inline __attribute__((always_inline)) void fetch(Extent bytes) {
        if (left_ > bytes && rows_ > 0) {  // far from the end of a row
            const char *const end = at_ + bytes;
            left_ -= (bytes + kLine - 1) / kLine * kLine;
            for (; at_ < end; at_ += kLine)
                __builtin_prefetch(at_);
            return;
        }
        for (; bytes > 0 && rows_ > 0; bytes -= kLine) {
            __builtin_prefetch(at_);
            at_ += kLine;
            left_ -= kLine;
            if (left_ <= 0) {
                at_ += left_;
                __builtin_prefetch(at_ - 1);  // in a separate line, unless the row is aligned
                at_ += skip_;
                left_ = span_;
                --rows_;
            }
        }
    }

  private:
    const char *at_ = nullptr;
    Extent left_ = 0, span_ = 0, skip_ = 0, rows_ = 0;
};

// State of a strip between two tiles.
struct Carry {
    char *line = nullptr;
    Extent filled = 0, skip = 0;
    char bytes[kLine];
};

// Collects the runs of a part until they fill lines of its target, which are then written whole. The memory of a strip
// contains the lines from `line` on, whose first `skip` bytes belong to others.
struct Strip {
    char *line;
    char *bytes;
    Extent filled, skip;

    void open(char *target, char *memory) {
        filled = skip = misalignment(target);
        line = target - skip;
        bytes = memory;
    }
    void open(const Carry &carry, char *memory) {
        line = carry.line;
        filled = carry.filled;
        skip = carry.skip;
        bytes = memory;
        std::memcpy(bytes, carry.bytes, kLine);
    }
    void keep(Carry &carry) const {
        carry.line = line;
        carry.filled = filled;
        carry.skip = skip;
        std::memcpy(carry.bytes, bytes, kLine);
    }
    char *end() const { return bytes + filled; }

    // Writes the full lines with `stream(target, source, bytes)`. Less than a line remains.
    template <class Stream>
    inline __attribute__((always_inline)) void flush(Stream stream) {
        if (filled < kLine)
            return;
        const Extent full = filled / kLine * kLine;
        Extent done = 0;
        if (skip != 0) {
            copy_plain(line + skip, bytes + skip, kLine - skip);
            skip = 0;
            done = kLine;
        }
        stream(line + done, bytes + done, full - done);
        std::memcpy(bytes, bytes + full, kLine);
        line += full;
        filled -= full;
    }
    // Writes the remaining bytes.
    void finish() {
        copy_plain(line + skip, bytes + skip, filled - skip);
        skip = filled;
    }
};

}  // namespace splitops
