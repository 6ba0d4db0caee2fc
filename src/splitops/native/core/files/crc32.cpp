#include "files/crc32.h"

#include <array>
#include <cstring>

#include "isa/processor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace splitops::files {
namespace {

constexpr std::uint32_t kPolynomial = 0xEDB88320;  // bit-reflected

// kTable[k][b]: checksum register of byte b followed by k zero bytes.
constexpr auto kTable = [] {
    std::array<std::array<std::uint32_t, 256>, 8> table{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit)
            value = (value >> 1) ^ (value & 1 ? kPolynomial : 0);
        table[0][byte] = value;
    }
    for (std::size_t k = 1; k < 8; ++k)
        for (std::size_t byte = 0; byte < 256; ++byte)
            table[k][byte] = (table[k - 1][byte] >> 8) ^ table[0][table[k - 1][byte] & 0xFF];
    return table;
}();

// Product of two bit-reflected polynomials modulo that of the CRC.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
    std::uint32_t product = 0;
    for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = (b >> 1) ^ (b & 1 ? kPolynomial : 0);
    }
    return product;
}

// x to the power 2^k.
constexpr auto kPowers = [] {
    std::array<std::uint32_t, 32> powers{};
    powers[0] = 1u << 30;
    for (std::size_t k = 1; k < 32; ++k)
        powers[k] = multiply(powers[k - 1], powers[k - 1]);
    return powers;
}();

// x to the power of a number of bits, modulo the polynomial of the CRC.
constexpr std::uint32_t power(std::uint64_t bits) {
    std::uint32_t result = 1u << 31;
    for (std::size_t k = 0; bits != 0; bits >>= 1, ++k)
        if (bits & 1)
            result = multiply(kPowers[k % 32], result);  // the powers of x repeat after 2^32 - 1
    return result;
}

// All functions below use the inverted register, as inside the algorithm.
std::uint32_t register_by_table(std::uint32_t r, const unsigned char *p, std::size_t bytes) {
    for (; bytes >= 8; bytes -= 8, p += 8) {
        const std::uint32_t low = r ^ (p[0] | p[1] << 8 | p[2] << 16 | static_cast<std::uint32_t>(p[3]) << 24);
        r = kTable[7][low & 0xFF] ^ kTable[6][low >> 8 & 0xFF] ^ kTable[5][low >> 16 & 0xFF] ^ kTable[4][low >> 24] ^
            kTable[3][p[4]] ^ kTable[2][p[5]] ^ kTable[1][p[6]] ^ kTable[0][p[7]];
    }
    for (; bytes > 0; --bytes, ++p)
        r = (r >> 8) ^ kTable[0][(r ^ *p) & 0xFF];
    return r;
}

#if defined(__x86_64__)

// "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Gopal and others, Intel, 2009), with the
// bit-reflected polynomial. Multipliers of the halves of 128 bits, to move them over a number of bits of the data:
consteval long long low_over(std::uint64_t bits) { return std::int64_t{power(bits + 32)} << 1; }
consteval long long high_over(std::uint64_t bits) { return std::int64_t{power(bits - 32)} << 1; }

// These are inlined into their callers: instructions encoded for 128 bits wait for wide registers.
#define SPLITOPS_PCLMUL __attribute__((target("pclmul,sse4.1")))
#define SPLITOPS_INSIDE __attribute__((target("pclmul,sse4.1"), always_inline)) inline
#define SPLITOPS_VPCLMUL __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

SPLITOPS_INSIDE __m128i load(const unsigned char *at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i *>(at));
}

SPLITOPS_INSIDE __m128i fold(__m128i value, __m128i by, __m128i next) {
    const __m128i low = _mm_clmulepi64_si128(value, by, 0x00), high = _mm_clmulepi64_si128(value, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// The register after 16 bytes and the bytes that follow, a multiple of 16.
SPLITOPS_INSIDE std::uint32_t register_of(__m128i a, const unsigned char *p, std::size_t bytes) {
    const __m128i by_one = _mm_set_epi64x(high_over(128), low_over(128));
    const __m128i to_32 = _mm_set_epi64x(0, low_over(32));
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);  // quotient and polynomial
    const __m128i low_halves = _mm_setr_epi32(~0, 0, ~0, 0);
    for (; bytes > 0; p += 16, bytes -= 16)
        a = fold(a, by_one, load(p));

    // Reduce 128 bits to 64, then to 32.
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_one, 0x10));
    a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low_halves), to_32, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(a, low_halves), barrett, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_halves), barrett, 0x00);
    return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(a, quotient), 1));
}

// Requires a multiple of 16 bytes, at least 64.
SPLITOPS_PCLMUL std::uint32_t register_by_folding(std::uint32_t r, const unsigned char *p, std::size_t bytes) {
    const __m128i by_four = _mm_set_epi64x(high_over(512), low_over(512));
    const __m128i by_one = _mm_set_epi64x(high_over(128), low_over(128));
    __m128i a = _mm_xor_si128(load(p), _mm_cvtsi32_si128(static_cast<int>(r)));
    __m128i b = load(p + 16), c = load(p + 32), d = load(p + 48);
    for (p += 64, bytes -= 64; bytes >= 64; p += 64, bytes -= 64) {
        a = fold(a, by_four, load(p));
        b = fold(b, by_four, load(p + 16));
        c = fold(c, by_four, load(p + 32));
        d = fold(d, by_four, load(p + 48));
    }
    return register_of(fold(fold(fold(a, by_one, b), by_one, c), by_one, d), p, bytes);
}

SPLITOPS_VPCLMUL inline __m512i load_wide(const unsigned char *at) { return _mm512_loadu_si512(at); }

SPLITOPS_VPCLMUL inline __m512i fold_wide(__m512i value, __m512i by, __m512i next) {
    const __m512i low = _mm512_clmulepi64_epi128(value, by, 0x00), high = _mm512_clmulepi64_epi128(value, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // exclusive or of three
}

// The same with registers of 64 bytes. Requires a multiple of 16 bytes, at least 256.
SPLITOPS_VPCLMUL std::uint32_t register_by_wide_folding(std::uint32_t r, const unsigned char *p, std::size_t bytes) {
    const __m512i by_four = _mm512_set4_epi64(high_over(2048), low_over(2048), high_over(2048), low_over(2048));
    const __m512i by_one = _mm512_set4_epi64(high_over(512), low_over(512), high_over(512), low_over(512));
    const __m128i by_lane = _mm_set_epi64x(high_over(128), low_over(128));
    const __m128i before = _mm_cvtsi32_si128(static_cast<int>(r));
    __m512i a = _mm512_xor_si512(load_wide(p), _mm512_zextsi128_si512(before));
    __m512i b = load_wide(p + 64), c = load_wide(p + 128), d = load_wide(p + 192);
    for (p += 256, bytes -= 256; bytes >= 256; p += 256, bytes -= 256) {
        a = fold_wide(a, by_four, load_wide(p));
        b = fold_wide(b, by_four, load_wide(p + 64));
        c = fold_wide(c, by_four, load_wide(p + 128));
        d = fold_wide(d, by_four, load_wide(p + 192));
    }
    a = fold_wide(fold_wide(fold_wide(a, by_one, b), by_one, c), by_one, d);
    for (; bytes >= 64; p += 64, bytes -= 64)
        a = fold_wide(a, by_one, load_wide(p));
    __m128i lanes[4];
    _mm512_storeu_si512(lanes, a);
    const __m128i first = fold(fold(fold(lanes[0], by_lane, lanes[1]), by_lane, lanes[2]), by_lane, lanes[3]);
    return register_of(first, p, bytes);
}

std::uint32_t advance(std::uint32_t r, const unsigned char *p, std::size_t bytes) {
    const Processor &has = processor();
    if (has.pclmul && bytes >= 64) {
        const std::size_t whole = bytes & ~std::size_t{15};
        r = has.vpclmul && bytes >= 256 ? register_by_wide_folding(r, p, whole) : register_by_folding(r, p, whole);
        p += whole;
        bytes -= whole;
    }
    return register_by_table(r, p, bytes);
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

std::uint32_t advance(std::uint32_t r, const unsigned char *p, std::size_t bytes) {
    for (; bytes >= 8; bytes -= 8, p += 8) {
        std::uint64_t word;
        std::memcpy(&word, p, 8);
        r = __crc32d(r, word);
    }
    return register_by_table(r, p, bytes);
}

#else

std::uint32_t advance(std::uint32_t r, const unsigned char *p, std::size_t bytes) {
    return register_by_table(r, p, bytes);
}

#endif

}  // namespace

std::uint32_t crc32(std::uint32_t crc, const char *data, std::size_t bytes) {
    return ~advance(~crc, reinterpret_cast<const unsigned char *>(data), bytes);
}

std::uint32_t crc32_by_table(std::uint32_t crc, const char *data, std::size_t bytes) {
    return ~register_by_table(~crc, reinterpret_cast<const unsigned char *>(data), bytes);
}

CrcJoin::CrcJoin(std::uint64_t bytes_of_second) : shift_(power(8 * (bytes_of_second % 0xFFFFFFFF))) {}

std::uint32_t CrcJoin::operator()(std::uint32_t first, std::uint32_t second) const {
    return multiply(shift_, first) ^ second;
}

}  // namespace splitops::files
