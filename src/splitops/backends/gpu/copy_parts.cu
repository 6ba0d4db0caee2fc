// Copies of the parts of a split, for CuPy: one launch for all parts, their table in the kernel's arguments.
//
// The data are `rows` rows of bytes, `stride` apart. A part is a run of bytes of each row, and its runs stand at its
// target, `pitch` apart or, where that is 0, one after another. No other memory is read or written.
//
// Uneven parts have a table: `begin` of entry i is where part i begins in a row, and one entry more says where the
// last part ends. Equal parts have `run` bytes each; entry i of their table is a stretch of parts, from part `begin`
// on, whose targets are `spacing` apart. Mostly there is one.

typedef long long i64;
typedef unsigned long long u64;

struct Entry {
    u64 target;
    i64 begin;
};

struct Table {
    Entry entry[ENTRIES];
};

#ifndef BY_EVERY_THREAD
#define BY_EVERY_THREAD(work) work
#define WAIT_FOR_THREADS __syncthreads();
#endif

// Returns the last entry that begins at or before a place.
__device__ i64 find(const Table& table, i64 length, i64 place) {
    i64 low = 0;
    for (i64 high = length; high - low > 1;) {
        const i64 middle = (low + high) / 2;
        if (table.entry[middle].begin <= place) low = middle;
        else high = middle;
    }
    return low;
}

// Returns the address of a part's memory, where parts are equal.
__device__ u64 target_of(const Table& table, i64 length, i64 spacing, i64 part) {
    const i64 i = find(table, length, part);
    return table.entry[i].target + (u64)((part - table.entry[i].begin) * spacing);
}

// Divides; 32 bits are several times faster than 64.
__device__ i64 quotient(i64 index, i64 divisor, bool brief) {
    return brief ? (i64)((unsigned)index / (unsigned)divisor) : index / divisor;
}

// Copies one tile of a part, a unit at a time.
template <class Unit>
__device__ void copy_tile(u64 source, i64 stride, i64 rows, i64 pitch, i64 run, u64 target, i64 block) {
    const i64 units = run / (i64)sizeof(Unit), total = rows * units, step = TILE / (i64)sizeof(Unit);
    const i64 stop = (block + 1) * step < total ? (block + 1) * step : total;
    const bool brief = total < ((i64)1 << 31);
#pragma unroll 4
    for (i64 index = block * step + threadIdx.x; index < stop; index += blockDim.x) {
        const i64 row = quotient(index, units, brief), column = (index - row * units) * (i64)sizeof(Unit);
        const u64 to = pitch ? row * pitch + column : index * (i64)sizeof(Unit);
        *(Unit*)(target + to) = *(const Unit*)(source + (u64)(row * stride + column));
    }
}

// The same in the widest units that the addresses allow.
__device__ void copy_widest(u64 source, i64 stride, i64 rows, i64 pitch, i64 run, u64 target, i64 block) {
    const u64 bits = source | (u64)stride | (u64)pitch | (u64)run | target;
    if (bits % 16 == 0) copy_tile<uint4>(source, stride, rows, pitch, run, target, block);
    else if (bits % 8 == 0) copy_tile<u64>(source, stride, rows, pitch, run, target, block);
    else if (bits % 4 == 0) copy_tile<unsigned>(source, stride, rows, pitch, run, target, block);
    else if (bits % 2 == 0) copy_tile<unsigned short>(source, stride, rows, pitch, run, target, block);
    else copy_tile<unsigned char>(source, stride, rows, pitch, run, target, block);
}

// Each block finds its part in the table and copies one tile of it. The blocks before part i are found without
// adding up: as many as the bytes before it fill, and one more for each part.
extern "C" __global__ void copy_uneven(u64 source, i64 stride, i64 rows, i64 pitch, i64 count, const Table table) {
    i64 low = 0;
    for (i64 high = count; high - low > 1;) {
        const i64 middle = (low + high) / 2;
        if (rows * table.entry[middle].begin / TILE + middle <= (i64)blockIdx.x) low = middle;
        else high = middle;
    }
    const i64 begin = table.entry[low].begin, run = table.entry[low + 1].begin - begin;
    const i64 block = (i64)blockIdx.x - (rows * begin / TILE + low);
    if (block * TILE >= rows * run) return;
    copy_widest(source + begin, stride, rows, pitch, run, table.entry[low].target, block);
}

// Each block copies one tile of one of the equal parts.
extern "C" __global__ void copy_equal(
    u64 source, i64 stride, i64 rows, i64 pitch, i64 count, i64 run, i64 spacing, i64 unit, i64 length,
    const Table table
) {
    const i64 blocks = (rows * run + TILE - 1) / TILE;
    const i64 part = (i64)blockIdx.x / blocks;
    const u64 target = target_of(table, length, spacing, part);
    copy_widest(source + (u64)(part * run), stride, rows, pitch, run, target, (i64)blockIdx.x - part * blocks);
}

// A thread copies a unit of the equal parts, taken as if they were one: they may be smaller than a block.
template <class Unit>
__device__ void copy_unit(
    u64 source, i64 stride, i64 rows, i64 pitch, i64 count, i64 run, i64 spacing, i64 length, const Table& table
) {
    const i64 units = run / (i64)sizeof(Unit), each = rows * units;
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const bool brief = count * each < ((i64)1 << 31);
    if (index >= count * each) return;
    const i64 part = quotient(index, each, brief), inside = index - part * each;
    const i64 row = quotient(inside, units, brief), column = (inside - row * units) * (i64)sizeof(Unit);
    const u64 to = pitch ? row * pitch + column : inside * (i64)sizeof(Unit);
    const u64 from = source + (u64)(part * run + row * stride + column);
    *(Unit*)(target_of(table, length, spacing, part) + to) = *(const Unit*)from;
}

extern "C" __global__ void copy_small(
    u64 source, i64 stride, i64 rows, i64 pitch, i64 count, i64 run, i64 spacing, i64 unit, i64 length,
    const Table table
) {
    if (unit == 16) copy_unit<uint4>(source, stride, rows, pitch, count, run, spacing, length, table);
    else if (unit == 8) copy_unit<u64>(source, stride, rows, pitch, count, run, spacing, length, table);
    else if (unit == 4) copy_unit<unsigned>(source, stride, rows, pitch, count, run, spacing, length, table);
    else if (unit == 2) copy_unit<unsigned short>(source, stride, rows, pitch, count, run, spacing, length, table);
    else copy_unit<unsigned char>(source, stride, rows, pitch, count, run, spacing, length, table);
}

// A thread copies the same unit of a group of parts: equal short runs share their cache lines.
template <class Unit>
__device__ void copy_units(
    u64 source, i64 stride, i64 rows, i64 pitch, i64 count, i64 run, i64 spacing, i64 length, const Table& table
) {
    const i64 groups = (count + GROUP - 1) / GROUP, block = (i64)blockIdx.x / groups;
    const i64 first = ((i64)blockIdx.x - block * groups) * GROUP;
    const i64 last = first + GROUP < count ? first + GROUP : count;
    const i64 units = run / (i64)sizeof(Unit), total = rows * units;
    const i64 index = block * blockDim.x + threadIdx.x;
    if (index >= total) return;
    const i64 row = quotient(index, units, total < ((i64)1 << 31));
    const i64 column = (index - row * units) * (i64)sizeof(Unit);
    const u64 from = source + (u64)(row * stride + column);
    const u64 to = pitch ? row * pitch + column : index * (i64)sizeof(Unit);
#pragma unroll 4
    for (i64 part = first; part < last; ++part) {
        *(Unit*)(target_of(table, length, spacing, part) + to) = *(const Unit*)(from + (u64)(part * run));
    }
}

extern "C" __global__ void copy_short(
    u64 source, i64 stride, i64 rows, i64 pitch, i64 count, i64 run, i64 spacing, i64 unit, i64 length,
    const Table table
) {
    if (unit == 16) copy_units<uint4>(source, stride, rows, pitch, count, run, spacing, length, table);
    else if (unit == 8) copy_units<u64>(source, stride, rows, pitch, count, run, spacing, length, table);
    else if (unit == 4) copy_units<unsigned>(source, stride, rows, pitch, count, run, spacing, length, table);
    else if (unit == 2) copy_units<unsigned short>(source, stride, rows, pitch, count, run, spacing, length, table);
    else copy_units<unsigned char>(source, stride, rows, pitch, count, run, spacing, length, table);
}

// A tile of rows and parts, in shared memory.
struct Tile {
    i64 rows, bytes, pitch;
};

// Moves rows of the source into the tile, neighbouring threads at neighbouring bytes.
template <class Unit>
__device__ void read_rows(const Tile& tile, u64 source, i64 stride, unsigned char* shared) {
    const unsigned units = (unsigned)(tile.bytes / (i64)sizeof(Unit)), total = (unsigned)tile.rows * units;
    for (unsigned index = threadIdx.x; index < total; index += blockDim.x) {
        const unsigned row = index / units, column = (index - row * units) * (unsigned)sizeof(Unit);
        const Unit value = *(const Unit*)(source + (u64)(row * stride + column));
        unsigned char* const place = shared + row * tile.pitch + column;
        if (sizeof(Unit) < 4) {
            *(Unit*)place = value;
        } else {
#pragma unroll
            for (int i = 0; i < (int)sizeof(Unit) / 4; ++i) ((unsigned*)place)[i] = ((const unsigned*)&value)[i];
        }
    }
}

__device__ void read_tile(const Tile& tile, u64 source, i64 stride, unsigned char* shared) {
    const u64 bits = source | (u64)stride | (u64)tile.bytes;
    if (bits % 16 == 0) read_rows<uint4>(tile, source, stride, shared);
    else if (bits % 8 == 0) read_rows<u64>(tile, source, stride, shared);
    else if (bits % 4 == 0) read_rows<unsigned>(tile, source, stride, shared);
    else if (bits % 2 == 0) read_rows<unsigned short>(tile, source, stride, shared);
    else read_rows<unsigned char>(tile, source, stride, shared);
}

// Moves the parts of the tile to their targets, neighbouring threads at neighbouring bytes: a word is put together
// of pieces, which may stand in several rows.
template <class Piece, class Word>
__device__ void write_words(
    const Tile& tile, i64 run, i64 first_row, i64 first_part, i64 spacing, i64 length, const Table& table,
    const unsigned char* shared
) {
    const unsigned width = (unsigned)sizeof(Word), bytes = (unsigned)(tile.rows * run), words = bytes / width;
    const unsigned total = (unsigned)(tile.bytes / run) * words;
    for (unsigned index = threadIdx.x; index < total; index += blockDim.x) {
        const unsigned part = index / words, word = index - part * words;
        unsigned row = word * width / (unsigned)run, place = word * width - row * (unsigned)run;
        Word value;
#pragma unroll
        for (unsigned i = 0; i < width / sizeof(Piece); ++i) {
            ((Piece*)&value)[i] = *(const Piece*)(shared + row * tile.pitch + part * run + place);
            place += sizeof(Piece);
            if (place == run) place = 0, ++row;
        }
        ((Word*)(target_of(table, length, spacing, first_part + part) + (u64)(first_row * run)))[word] = value;
    }
}

template <class Piece>
__device__ void write_tile(
    const Tile& tile, i64 run, i64 first_row, i64 first_part, i64 spacing, i64 unit, i64 length, const Table& table,
    const unsigned char* shared
) {
    // `unit` divides every target; a run's place in it, and how much of it is here, are for each tile to see.
    const u64 bits = (u64)unit | (u64)(first_row * run) | (u64)(tile.rows * run);
    if (bits % 16 == 0) write_words<Piece, uint4>(tile, run, first_row, first_part, spacing, length, table, shared);
    else if (bits % 8 == 0) write_words<Piece, u64>(tile, run, first_row, first_part, spacing, length, table, shared);
    else if (bits % 4 == 0) {
        write_words<Piece, unsigned>(tile, run, first_row, first_part, spacing, length, table, shared);
    } else write_words<Piece, Piece>(tile, run, first_row, first_part, spacing, length, table, shared);
}

// A block reads a tile along its rows and writes it along its parts: equal runs of few bytes. `unit` divides all
// targets, `piece` all that there is; a tile is `high` rows of `wide` parts, `apart` in shared memory.
extern "C" __global__ void copy_turned(
    u64 source, i64 stride, i64 rows, i64 pitch, i64 count, i64 run, i64 spacing, i64 unit, i64 length,
    i64 piece, i64 high, i64 wide, i64 apart, const Table table
) {
    __shared__ uint4 words[SHARED / 16];
    unsigned char* const shared = (unsigned char*)words;
    const i64 across = (count + wide - 1) / wide, down = (i64)blockIdx.x / across;
    const i64 first_row = down * high, first_part = ((i64)blockIdx.x - down * across) * wide;
    const i64 parts = first_part + wide < count ? wide : count - first_part;
    const Tile tile = {first_row + high < rows ? high : rows - first_row, parts * run, apart};
    const u64 begin = source + (u64)(first_row * stride + first_part * run);
    BY_EVERY_THREAD(read_tile(tile, begin, stride, shared);)
    WAIT_FOR_THREADS
    if (piece % 4 == 0) {
        BY_EVERY_THREAD(
            write_tile<unsigned>(tile, run, first_row, first_part, spacing, unit, length, table, shared);
        )
    } else if (piece % 2 == 0) {
        BY_EVERY_THREAD(
            write_tile<unsigned short>(tile, run, first_row, first_part, spacing, unit, length, table, shared);
        )
    } else {
        BY_EVERY_THREAD(
            write_tile<unsigned char>(tile, run, first_row, first_part, spacing, unit, length, table, shared);
        )
    }
}
