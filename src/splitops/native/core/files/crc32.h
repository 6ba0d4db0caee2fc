// The CRC-32 of zlib, zip and PNG, computed with carry-less multiplication if the processor has it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace splitops::files {

// The checksum of bytes that follow others with the checksum `crc` (0: none).
std::uint32_t crc32(std::uint32_t crc, const char *data, std::size_t bytes);

// The same without special instructions, as a reference for tests.
std::uint32_t crc32_by_table(std::uint32_t crc, const char *data, std::size_t bytes);

// Combines the checksums of adjacent bytes; the second has the given length.
class CrcJoin {
  public:
    explicit CrcJoin(std::uint64_t bytes_of_second);
    std::uint32_t operator()(std::uint32_t first, std::uint32_t second) const;

  private:
    std::uint32_t shift_;
};

}  // namespace splitops::files
