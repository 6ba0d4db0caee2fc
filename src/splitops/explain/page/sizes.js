"use strict";
// The size rules of splitops.spec.sizes.arithmetic and splitops.splitting.binding. Tests compare the results, case by case.
// All numbers are BigInt, so that sizes are exact. Parts are runs [size, number of parts].

const LARGEST = (1n << 63n) - 1n;
const MOST_PARTS = 1n << 24n;

const broken = (rule, text) => ({ rule, text });
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0n);

/** Divide an axis into `count` parts: full ones of size `chunk`, one with the rest, then empty ones. */
function uniform(size, chunk, count) {
  const full = chunk > 0n ? (size / chunk < count ? size / chunk : count) : 0n;
  const rest = full < count && chunk > 0n ? size - full * chunk : 0n;
  const empty = count - full - (rest > 0n ? 1n : 0n);
  return [[chunk, full], [rest, rest > 0n ? 1n : 0n], [0n, empty]].filter(([, many]) => many > 0n);
}

function byLengths(row, lengths, size) {
  for (const length of lengths)
    if (length > LARGEST || length < -LARGEST - 1n)
      return broken("lengths.value", `${length} is no 64-bit integer`);
  for (const length of lengths)
    if (length < BigInt(row.least)) return broken("lengths.negative", `${length}: each length must be >= ${row.least}`);
  const open = lengths.indexOf(-1n);
  if (open !== lengths.lastIndexOf(-1n)) return broken("remainder.repeated", "only one length may be -1");
  if (!lengths.length && !row.sequence) return broken("lengths.count", "there must be at least one part");
  const total = sum(lengths) + (open < 0 ? 0n : 1n);
  if (open < 0 && total !== size) return broken("lengths.sum", `the lengths sum to ${total}, but the axis has size ${size}`);
  if (open >= 0 && total > size) return broken("remainder.negative", `${size - total} would be left for the -1`);
  return { runs: lengths.map((length) => [length === -1n ? size - total : length, 1n]) };
}

function byCount(row, count, size) {
  if (count < 1n || (row.attribute && count > LARGEST)) return broken("parts.count", "it must be a 64-bit integer >= 1");
  if (row.parts === "even") {
    if (size % count) return broken("parts.divisible", `${count} does not divide ${size}`);
    return { runs: [[size / count, count]] };
  }
  return { runs: uniform(size, (size + count - 1n) / count, count) };
}

function byChunk(chunk, size) {
  if (chunk > LARGEST || chunk < -LARGEST - 1n) return broken("lengths.value", `${chunk} is no 64-bit integer`);
  if (chunk < 1n) return broken("chunk.positive", "a chunk must have a size of at least 1");
  return { runs: uniform(size, chunk, (size + chunk - 1n) / chunk) };
}

/**
 * Divide an axis of a shape. Return {axis, runs, count, squeeze}, or {rule, text} if a rule is broken.
 * way is "sizes", "parts", "chunk" or "ones" (a SplitToSequence without lengths).
 */
function divide(row, shape, axis, way, numbers, keepdims) {
  if (way === "parts" && !row.attribute && numbers[0] < 1n)
    return broken("parts.count", "there must be at least one output");
  const rank = BigInt(shape.length);
  if (!rank) return broken("axis.range", "data of rank 0 has no axis to split");
  if (axis < -rank || axis >= rank) return broken("axis.range", `the axis must be in [${-rank}, ${rank - 1n}]`);
  const at = Number(axis < 0n ? axis + rank : axis), size = shape[at];
  const found =
    way === "sizes" ? byLengths(row, numbers, size)
    : way === "parts" ? byCount(row, numbers[0], size)
    : byChunk(way === "ones" ? 1n : numbers[0], size);
  if (found.rule) return found;
  const count = sum(found.runs.map(([, many]) => many));
  if (count > MOST_PARTS) return broken("parts.count", `${count} parts are more than ${MOST_PARTS}`);
  return { axis: at, runs: found.runs, count, squeeze: way === "ones" && !keepdims };
}

/** Return the bytes of elements with `bits` bits. If `group` is not 0, they are stored in whole groups. */
const bytesOf = (elements, [bits, group]) => {
  const width = BigInt(bits), together = BigInt(group);
  if (!together) return (elements * width + 7n) / 8n;
  return ((elements + together - 1n) / together) * ((together * width) / 8n);
};

/** Return the layout of a part in memory: its shape, elements, bytes and contiguous runs. */
function layout(shape, axis, size, dtype, squeeze) {
  const product = (dims) => dims.reduce((all, dim) => all * dim, 1n);
  const inner = product(shape.slice(axis + 1));
  let run = size * inner, runs = product(shape.slice(0, axis));
  if (size === shape[axis]) [run, runs] = [run * runs, 1n];
  if (!(run * runs)) run = runs = 0n;
  const dims = squeeze ? [...shape.slice(0, axis), ...shape.slice(axis + 1)] : [...shape.slice(0, axis), size, ...shape.slice(axis + 1)];
  return { shape: dims, elements: run * runs, bytes: bytesOf(run * runs, dtype), run, runs };
}

if (typeof module !== "undefined") module.exports = { divide, layout };
