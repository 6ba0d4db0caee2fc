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
    u64 source, i64 stride, i64 rows, i64 pitch, i64 count, i64 run, i64 spacing, i64 length,
    const Table table
) {
    const i64 blocks = (rows * run + TILE - 1) / TILE;
    const i64 part = (i64)blockIdx.x / blocks;
    const u64 target = target_of(table, length, spacing, part);
    copy_widest(source + (u64)(part * run), stride, rows, pitch, run, target, (i64)blockIdx.x - part * blocks);
}
