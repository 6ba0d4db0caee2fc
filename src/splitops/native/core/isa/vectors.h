// The vector kernels: adjacent runs are separated by transposing, single runs are gathered by shuffles. Included
// only in the file of an instruction set, which must first define:
//   SPLITOPS_SIMD    attribute of functions that use its instructions; SPLITOPS_INLINE for inlined functions
//   Pair             two vectors of 16 bytes that go through the same steps
//   stream_lines     copies whole lines past the caches
// Everything is local to that file, so that no two instruction sets share a function.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>

#include "isa/instruction_sets.h"

namespace splitops {
namespace {

constexpr Extent kVector = LaneTable::kVector;
constexpr Extent kFetchBytes = 4 * kLine;  // prefetched at once, to save counting them

// Interleaving the halves of a list of vectors, log2(size) times, transposes it.
template <int Lane>
SPLITOPS_INLINE void interleave(Pair *v) {
    constexpr int lanes = static_cast<int>(kVector) / Lane;
    Pair mixed[lanes];
    for (int i = 0; i < lanes / 2; ++i) {
        mixed[2 * i] = Pair::low<Lane>(v[i], v[i + lanes / 2]);
        mixed[2 * i + 1] = Pair::high<Lane>(v[i], v[i + lanes / 2]);
    }
    for (int i = 0; i < lanes; ++i)
        v[i] = mixed[i];
}

// One step: loads are `pitch` bytes apart, and the runs are written to `row` of the targets.
template <int Lane, bool Spreads, bool Packs>
SPLITOPS_INLINE void take_step(const LaneTable &t, const char *from, Extent pitch, Extent row, char *const *targets) {
    constexpr int lanes = static_cast<int>(kVector) / Lane;
    const Extent equal = row * t.run[0];  // without gaps, all runs are equal, and the halves follow each other
    const auto store = [&](Pair v, int part) SPLITOPS_SIMD {
        char *to = targets[part] + (Packs ? row * t.run[part] : equal);
        if (Packs)
            v.shuffled(Pair::both(t.pack[part])).store(to, to + lanes * t.rows * t.run[part]);
        else
            v.store(to);
    };
    const int parts = t.parts;  // a local copy is not read again after each store
    Pair v[lanes];
    const char *low = from, *high = from + lanes * pitch;
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i, low += pitch, high += pitch) {
        v[i] = Pair::load(low, high);
        if (Spreads)
            v[i] = v[i].shuffled(Pair::both(t.spread));
    }
    if (lanes >= 4)
        interleave<Lane>(v);
    if (lanes >= 8)
        interleave<Lane>(v);
    if (lanes >= 16)
        interleave<Lane>(v);
#pragma GCC unroll 8
    for (int i = 0; i < lanes / 2; ++i) {  // the last interleaving, for the existing parts
        if (2 * i < parts)
            store(Pair::low<Lane>(v[i], v[i + lanes / 2]), 2 * i);
        if (2 * i + 1 < parts)
            store(Pair::high<Lane>(v[i], v[i + lanes / 2]), 2 * i + 1);
    }
}

// Loads past the end of the source, and stores past the end of the targets, are left to the last steps.
template <int Lane, bool Spreads, bool Packs>
struct Steps {
    static constexpr Extent loads = kHalves * kVector / Lane;
    const LaneTable &t;
    const Extent rows = loads * t.rows;  // rows of a step
    const Extent load_pitch = t.rows * t.pitch;

    // The number of whole steps that are possible.
    SPLITOPS_INLINE Extent whole(Extent count, Extent readable) const {
        const Extent reach = (loads - 1) * load_pitch + kVector;
        return std::min(count / rows, readable < reach ? 0 : (readable - reach) / (loads * load_pitch) + 1);
    }
    SPLITOPS_INLINE void take(const char *source, Extent row, char *const *targets) const {
        take_step<Lane, Spreads, Packs>(t, source, load_pitch, row, targets);
    }
    // A partial step, or one at the end of the source or of the targets.
    SPLITOPS_INLINE void take_last(const char *source, Extent count, Extent readable, char *const *targets) const {
        alignas(32) char in[loads * kVector] = {};
        alignas(32) char out[LaneTable::kMaxParts][4 * kVector];
        char *outs[LaneTable::kMaxParts];
        for (Extent i = 0; i * t.rows < count; ++i)
            std::memcpy(in + i * kVector, source + i * load_pitch,
                        static_cast<std::size_t>(std::min(kVector, readable - i * load_pitch)));
        for (int i = 0; i < t.parts; ++i)
            outs[i] = out[i];
        take_step<Lane, Spreads, Packs>(t, in, kVector, 0, outs);
        for (int i = 0; i < t.parts; ++i)
            std::memcpy(targets[i], out[i], static_cast<std::size_t>(count * t.run[i]));
    }
};

struct Plainly {
    template <int Lane, bool Spreads, bool Packs>
    static SPLITOPS_SIMD void run(const LaneTable &t, const char *source, Extent count, Extent readable,
                                  char *const *targets) {
        const Steps<Lane, Spreads, Packs> steps{t};
        Extent whole = steps.whole(count, readable);
        if (Packs) {  // the stores of short runs extend over several steps
            const Extent shortest = *std::min_element(t.run, t.run + t.parts);
            whole = std::min(whole, std::max<Extent>(0, count - (kVector + shortest - 1) / shortest) / steps.rows);
        }
        for (Extent i = 0; i < whole; ++i)
            steps.take(source + i * steps.loads * steps.load_pitch, i * steps.rows, targets);
        for (Extent row = whole * steps.rows; row < count; row += steps.rows) {
            char *last[LaneTable::kMaxParts];
            for (int i = 0; i < t.parts; ++i)
                last[i] = targets[i] + row * t.run[i];
            steps.take_last(source + row * t.pitch, std::min(steps.rows, count - row), readable - row * t.pitch, last);
        }
    }
};

struct Streaming {
    static SPLITOPS_INLINE void find_ends(const LaneTable &t, const Strip *strips, char **ends) {
        for (int i = 0; i < t.parts; ++i)
            ends[i] = strips[i].end();
    }
    static SPLITOPS_INLINE void flush(const LaneTable &t, Strip *strips, Extent rows) {
        for (int i = 0; i < t.parts; ++i) {
            strips[i].filled += rows * t.run[i];
            strips[i].flush(stream_lines);
        }
    }
    template <int Lane, bool Spreads, bool Packs>
    static SPLITOPS_SIMD void run(const LaneTable &table, const char *source, Extent count, Extent readable,
                                  Strip *strips, Ahead &progress) {
        const LaneTable t = table;  // local copies, which no store of a byte can change
        Ahead ahead = progress;
        const Steps<Lane, Spreads, Packs> steps{t};
        const Extent step_bytes = steps.loads * steps.load_pitch;
        const Extent share = steps.rows * std::accumulate(t.run, t.run + t.parts, Extent{0});
        const Extent turn = std::max<Extent>(1, kFetchBytes / share);
        const Extent whole = steps.whole(count, readable);
        char *ends[LaneTable::kMaxParts];
        for (Extent done = 0; done < whole; done += kLaneSteps) {
            const Extent some = std::min(kLaneSteps, whole - done);
            find_ends(t, strips, ends);
            for (Extent i = 0; i < some; i += turn) {
                for (Extent j = i; j < std::min(some, i + turn); ++j)
                    steps.take(source + (done + j) * step_bytes, j * steps.rows, ends);
                ahead.fetch(turn * share);
            }
            flush(t, strips, some * steps.rows);
        }
        progress = ahead;
        for (Extent row = whole * steps.rows; row < count; row += steps.rows) {
            const Extent rows = std::min(steps.rows, count - row);
            find_ends(t, strips, ends);
            steps.take_last(source + row * t.pitch, rows, readable - row * t.pitch, ends);
            flush(t, strips, rows);
        }
    }
};

template <class How, int Lane, class... Rest>
void take_apart_lanes(const LaneTable &t, Rest... rest) {
    if (t.packs)
        t.spreads ? How::template run<Lane, true, true>(t, rest...) : How::template run<Lane, false, true>(t, rest...);
    else if (t.spreads)
        How::template run<Lane, true, false>(t, rest...);
    else
        How::template run<Lane, false, false>(t, rest...);
}

template <class How, class... Rest>
void take_apart_as(const LaneTable &t, Rest... rest) {
    switch (t.lane) {
        case 1: return take_apart_lanes<How, 1, Rest...>(t, rest...);
        case 2: return take_apart_lanes<How, 2, Rest...>(t, rest...);
        case 4: return take_apart_lanes<How, 4, Rest...>(t, rest...);
        default: return take_apart_lanes<How, 8, Rest...>(t, rest...);
    }
}

// The rows of a gathering step with the fewest instructions per byte.
struct BestRows {
    Extent rows;
    double cost;
};

BestRows best_rows(Extent run, Extent pitch) {
    BestRows best{0, kNever};
    for (Extent rows = 1; rows * run <= kVector; ++rows) {
        const Extent loads = gather_loads(kVector, run, pitch, rows);
        const double cost = static_cast<double>(4 * loads + 2) / static_cast<double>(kHalves * rows * run);
        if (loads <= GatherTable::kMaxLoads && cost < best.cost)
            best = {rows, cost};
    }
    return best;
}

double gather_cost(Extent run, Extent pitch) { return best_rows(run, pitch).cost; }

void prepare_gather(Extent run, Extent pitch, GatherTable &t) {
    std::memset(t.index, 0x80, sizeof t.index);  // an index with the top bit set gives zero
    prepare_gather(kVector, run, pitch, best_rows(run, pitch).rows, t,
                   [&](int i, int from) { t.index[from / kVector][i] = static_cast<std::uint8_t>(from % kVector); });
}

// A step copies twice the rows of the table.
template <int Loads>
SPLITOPS_SIMD void gather_loaded(const GatherTable &t, const char *source, Extent count, Extent readable,
                                        char *target, Extent writable) {
    const Extent source_step = t.rows * t.pitch, target_step = t.rows * t.run;
    const auto gathered = [&](const char *low, const char *high) SPLITOPS_SIMD {
        Pair result = Pair::load(low, high).shuffled(Pair::both(t.index[0]));
        for (int i = 1; i < Loads; ++i)
            result = result | Pair::load(low + 16 * i, high + 16 * i).shuffled(Pair::both(t.index[i]));
        return result;
    };
    Extent steps = count / (2 * t.rows);
    const Extent reach = source_step + Loads * 16, end = target_step + 16;
    steps = std::min(steps, readable < reach ? 0 : (readable - reach) / (2 * source_step) + 1);
    steps = std::min(steps, writable < end ? 0 : (writable - end) / (2 * target_step) + 1);
    for (Extent i = 0; i < steps; ++i) {
        const char *from = source + 2 * i * source_step;
        char *to = target + 2 * i * target_step;
        gathered(from, from + source_step).store(to, to + target_step);
    }
    for (Extent row = 2 * steps * t.rows; row < count; row += t.rows) {
        const Extent rows = std::min<Extent>(t.rows, count - row);
        char in[Loads * 16] = {}, out[16], unused[16];
        std::memcpy(in, source + row * t.pitch,
                    static_cast<std::size_t>(std::min<Extent>(readable - row * t.pitch, Loads * 16)));
        gathered(in, in).store(out, unused);
        std::memcpy(target + row * t.run, out, static_cast<std::size_t>(rows * t.run));
    }
}

void gather(const GatherTable &t, const char *source, Extent count, Extent readable, char *target, Extent writable) {
    constexpr auto kernels = each_count([](auto loads) { return gather_loaded<loads()>; });
    kernels[static_cast<std::size_t>(t.loads - 1)](t, source, count, readable, target, writable);
}

void take_apart(const LaneTable &t, const char *source, Extent count, Extent readable, char *const *targets) {
    take_apart_as<Plainly>(t, source, count, readable, targets);
}

void take_apart_streaming(const LaneTable &t, const char *source, Extent count, Extent readable, Strip *strips,
                          Ahead &ahead) {
    take_apart_as<Streaming, const char *, Extent, Extent, Strip *, Ahead &>(t, source, count, readable, strips, ahead);
}

// The instruction set with these vector kernels.
InstructionSet with_vectors(const char *name, void (*copy_runs)(const Runs &)) {
    return {
        .name = name,
        .copy_runs = copy_runs,
        .stream_lines = stream_lines,
        .gather_cost = gather_cost,
        .prepare_gather = prepare_gather,
        .gather = gather,
        .take_apart = take_apart,
        .take_apart_streaming = take_apart_streaming,
    };
}

}  // namespace
}  // namespace splitops
