// Holds the kernels of every instruction set against a plain loop, without Python: for other architectures.
//
//   tests/native/kernels.sh              builds it with $CXX and runs it
//   CXX=aarch64-linux-gnu-g++ RUN=qemu-aarch64-static tests/native/kernels.sh
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "copy/split_copy.h"
#include "copy/thread_pool.h"
#include "isa/instruction_sets.h"

using namespace splitops;

namespace {

constexpr Extent kMargin = 64;
constexpr char kPoison = static_cast<char>(0xA5);

struct Case {
    std::vector<Extent> runs;
    Extent rows, gap, shift;
};

bool check(const Case &c, std::mt19937 &random) {
    Extent width = c.gap;
    for (const Extent run : c.runs)
        width += run;
    std::vector<char> source(static_cast<std::size_t>(width * c.rows));
    for (char &byte : source)
        byte = static_cast<char>(random());
    std::vector<std::vector<char>> memory;
    std::vector<SplitTarget> targets;
    Extent offset = 0;
    for (const Extent run : c.runs) {
        memory.emplace_back(static_cast<std::size_t>(run * c.rows + c.shift + 2 * kMargin), kPoison);
        targets.push_back({memory.back().data() + kMargin + c.shift, offset, run, nullptr});
        offset += run;
    }
    const Extent shape[] = {c.rows, width}, strides[] = {width, 1};
    split_copy({source.data(), 2, shape, strides, 1, 1}, targets.data(), targets.size(), false, false);
    for (std::size_t i = 0; i < targets.size(); ++i) {
        std::vector<char> expected(memory[i].size(), kPoison);
        for (Extent row = 0; row < c.rows; ++row)
            std::memcpy(expected.data() + kMargin + c.shift + row * c.runs[i],
                        source.data() + row * width + targets[i].offset, static_cast<std::size_t>(c.runs[i]));
        if (memory[i] != expected)
            return false;
    }
    return true;
}

}  // namespace

int main() {
    std::mt19937 random(1);
    const auto below = [&](int n) { return static_cast<Extent>(random() % static_cast<unsigned>(n)); };
    thread_pool::set_threads(2);
    for (const InstructionSet &set : instruction_sets()) {
        use_instruction_set(set);
        for (int n = 0; n < 1500; ++n) {
            set_thresholds({n % 2 == 0 ? 1 : Extent{1} << 60, n % 4 < 2 ? 1 : Extent{1} << 60});
            Case c{{}, 1 + below(1400), below(3) == 0 ? below(40) : 0, below(70)};
            const int longest = n % 5 == 0 ? 400 : n % 5 == 1 ? 40 : 17;
            const Extent parts = 1 + below(20), equal = below(2) == 0 ? 1 + below(longest - 1) : 0;
            for (Extent i = 0; i < parts; ++i)
                c.runs.push_back(equal != 0 ? equal : below(longest));
            if (!check(c, random)) {
                std::printf("%s: rows %td, gap %td, shift %td, runs", set.name, c.rows, c.gap, c.shift);
                for (const Extent run : c.runs)
                    std::printf(" %td", run);
                std::printf("\n");
                return 1;
            }
        }
        std::printf("%s: 1500 cases\n", set.name);
    }
}
