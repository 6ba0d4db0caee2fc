// Sizes of the machine, from which other constants are derived.
#pragma once

#include <cstddef>

namespace splitops {

constexpr std::ptrdiff_t kLine = 64;  // bytes of a cache line
constexpr std::ptrdiff_t kSmallPage = std::ptrdiff_t{4} << 10;
constexpr std::ptrdiff_t kHugePage = std::ptrdiff_t{2} << 20;

}  // namespace splitops
