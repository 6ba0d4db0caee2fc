// The CRC-32 of zlib, zip and PNG, with the processor's carry-less multiplication where it has one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace splitops::files {

// The checksum of what `crc` is the checksum of (0: of nothing), followed by these bytes.
std::uint32_t crc32(std::uint32_t crc, const char *data, std::size_t bytes);

// The same without the processor's help: what it is tested against.
std::uint32_t crc32_by_table(std::uint32_t crc, const char *data, std::size_t bytes);

// Joins checksums of neighbours, the second of which has a given length.
class CrcJoin {
  public:
    explicit CrcJoin(std::uint64_t bytes_of_second);
    std::uint32_t operator()(std::uint32_t first, std::uint32_t second) const;

  private:
    std::uint32_t shift_;
};

}  // namespace splitops::files
