// Copies of the parts of a split, for CuPy: one launch for all parts, their table in the kernel's arguments.
//
// The data are `rows` rows of bytes, `stride` apart; part i is the bytes from where part i - 1 ends up to `end`
// of each row, and its runs stand one after another at `target`. No other memory is read or written.

typedef long long i64;
typedef unsigned long long u64;

struct Part {
    u64 target;
    i64 end;
};

struct Table {
    Part part[MAX_PARTS];
};

// Copies one tile of a part, a unit at a time.
template <class Unit>
__device__ void copy_tile(u64 source, i64 stride, i64 rows, i64 run, u64 target, i64 block) {
    const i64 units = run / (i64)sizeof(Unit), total = rows * units, step = TILE / (i64)sizeof(Unit);
    const i64 stop = (block + 1) * step < total ? (block + 1) * step : total;
    const bool brief = total < ((i64)1 << 31);  // 32-bit division is several times faster
#pragma unroll 4
    for (i64 index = block * step + threadIdx.x; index < stop; index += blockDim.x) {
        const i64 row = brief ? (i64)((unsigned)index / (unsigned)units) : index / units;
        const i64 from = row * stride + (index - row * units) * (i64)sizeof(Unit);
        ((Unit*)target)[index] = *(const Unit*)(source + from);
    }
}

// Each block finds its part in the table and copies one tile of it, in the widest units that its addresses allow.
extern "C" __global__ void copy_runs(u64 source, i64 stride, i64 rows, i64 count, const Table table) {
    i64 begin = 0, first = 0, run = 0;
    u64 target = 0;
    for (i64 i = 0, passed = 0, from = 0; i < count; ++i) {
        const i64 length = table.part[i].end - from;
        const i64 blocks = (rows * length + TILE - 1) / TILE;
        if ((i64)blockIdx.x >= passed && (i64)blockIdx.x < passed + blocks) {
            begin = from, first = passed, run = length, target = table.part[i].target;
        }
        passed += blocks;
        from = table.part[i].end;
    }
    const u64 bits = (source + begin) | (u64)stride | (u64)run | target;
    const i64 block = (i64)blockIdx.x - first;
    if (run == 0) return;
    if (bits % 16 == 0) copy_tile<uint4>(source + begin, stride, rows, run, target, block);
    else if (bits % 8 == 0) copy_tile<u64>(source + begin, stride, rows, run, target, block);
    else if (bits % 4 == 0) copy_tile<unsigned>(source + begin, stride, rows, run, target, block);
    else if (bits % 2 == 0) copy_tile<unsigned short>(source + begin, stride, rows, run, target, block);
    else copy_tile<unsigned char>(source + begin, stride, rows, run, target, block);
}

// A thread copies the same unit of every part: equal short runs share their cache lines.
template <class Unit>
__device__ void copy_units(u64 source, i64 stride, i64 rows, i64 count, i64 run, const Table& table) {
    const i64 units = run / (i64)sizeof(Unit), total = rows * units;
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= total) return;
    const i64 row = total < ((i64)1 << 31) ? (i64)((unsigned)index / (unsigned)units) : index / units;
    const u64 from = source + row * stride + (index - row * units) * (i64)sizeof(Unit);
    for (i64 i = 0; i < count; ++i) {
        ((Unit*)table.part[i].target)[index] = *(const Unit*)(from + i * run);
    }
}

extern "C" __global__ void copy_short_runs(
    u64 source, i64 stride, i64 rows, i64 count, i64 run, i64 unit, const Table table
) {
    if (unit == 16) copy_units<uint4>(source, stride, rows, count, run, table);
    else if (unit == 8) copy_units<u64>(source, stride, rows, count, run, table);
    else if (unit == 4) copy_units<unsigned>(source, stride, rows, count, run, table);
    else if (unit == 2) copy_units<unsigned short>(source, stride, rows, count, run, table);
    else copy_units<unsigned char>(source, stride, rows, count, run, table);
}
