// What a harness draws from the bytes of the fuzzer, and the layouts of memory that it draws.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "copy/strided_copy.h"

// Ends the process with a line: a finding.
#define HOLDS(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
            std::abort();                                                                 \
        }                                                                                 \
    } while (false)

namespace splitops::fuzz {

constexpr char kPoison = static_cast<char>(0xA5);

class Draw {
  public:
    Draw(const std::uint8_t *data, std::size_t size) : at_(data), end_(data + size) {}

    // 0 to `most`; 0 where the bytes are used up.
    Extent upto(Extent most) {
        std::uint64_t value = 0;
        for (Extent left = most; left > 0; left >>= 8)
            value = value << 8 | (at_ < end_ ? *at_++ : 0);
        const std::uint64_t values = static_cast<std::uint64_t>(most) + 1;
        return static_cast<Extent>(value % values);
    }
    bool yes() { return upto(1) == 1; }

    // Mostly small, at times any 64 bits.
    std::int64_t any() {
        switch (upto(5)) {
            case 0: return upto(3) - 1;
            case 1: return INT64_MAX - upto(255);
            case 2: return std::int64_t{1} << upto(62);
            case 3: {
                std::uint64_t bits = 0;
                for (int i = 0; i < 8; ++i)
                    bits = bits << 8 | static_cast<std::uint64_t>(upto(255));
                return static_cast<std::int64_t>(bits);
            }
            default: return upto(255);
        }
    }

  private:
    const std::uint8_t *at_, *end_;
};

// Bytes on the heap, no one more than asked for, so that the sanitizer sees what lies outside.
class Memory {
  public:
    explicit Memory(Extent bytes) : data_(new char[static_cast<std::size_t>(bytes)]), bytes_(bytes) {
        std::fill_n(data_.get(), bytes, kPoison);
    }
    char *data() const { return data_.get(); }
    Extent bytes() const { return bytes_; }

    void number() {
        std::uint32_t state = 1;
        for (Extent i = 0; i < bytes_; ++i)
            data_[i] = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    }

  private:
    std::unique_ptr<char[]> data_;
    Extent bytes_;
};

// An array in memory of its own: its axes in any order, with gaps and walked from either end.
struct Layout {
    std::vector<Extent> shape, strides;
    Extent itemsize, first = 0, bytes = 0;  // where the element of zeros lies, and what is needed in all

    Layout(std::vector<Extent> extents, Extent item, Draw &draw, bool repeats) : shape(std::move(extents)), itemsize(item) {
        std::vector<std::size_t> order(shape.size());
        std::iota(order.rbegin(), order.rend(), 0);  // the last axis is the densest one
        const bool plain = draw.upto(3) > 0;
        if (!plain)
            for (std::size_t i = 1; i < order.size(); ++i)
                std::swap(order[i], order[static_cast<std::size_t>(draw.upto(static_cast<Extent>(i)))]);
        strides.assign(shape.size(), 0);
        Extent step = itemsize, last = 0;
        for (const std::size_t axis : order) {
            const Extent extent = std::max<Extent>(shape[axis], 1), kind = plain && draw.upto(7) > 0 ? 0 : draw.upto(3);
            if (repeats && kind == 1)
                continue;  // every position is the same one
            if (kind > 1)
                step += draw.upto(40);
            strides[axis] = step;
            last += (extent - 1) * step;
            if (kind == 3) {
                first += (extent - 1) * step;
                strides[axis] = -step;
            }
            step *= extent;
        }
        const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
        bytes = empty ? first : last + itemsize;
    }

    // Calls `visit(index, position)` for every element, in the order of the indices.
    template <class Visit>
    void each(Visit visit) const {
        if (std::find(shape.begin(), shape.end(), 0) != shape.end())
            return;
        std::vector<Extent> index(shape.size());
        for (;;) {
            Extent at = first;
            for (std::size_t i = 0; i < shape.size(); ++i)
                at += index[i] * strides[i];
            visit(index, at);
            std::size_t axis = shape.size();
            while (axis > 0 && ++index[axis - 1] == shape[axis - 1])
                index[--axis] = 0;
            if (axis == 0)
                return;
        }
    }
};

}  // namespace splitops::fuzz
