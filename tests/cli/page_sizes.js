// Answers requests of the tests with what sizes.js gives, or code.js: JSON in, JSON out, integers as text.
const { divide, layout } = require(process.argv[2]);
const { code } = process.argv[3] ? require(process.argv[3]) : {};
const big = (values) => values.map(BigInt);
const requests = JSON.parse(require("fs").readFileSync(0, "utf8"));
const answers = requests.map(({ row, shape, axis, way, numbers, keepdims, packing }) => {
  const found = divide(row, big(shape), BigInt(axis), way, big(numbers), keepdims);
  if (found.rule) return found.rule;
  if (code) return code({ row, shape: big(shape), way, numbers: big(numbers), keepdims }, found);
  const parts = found.runs.map(([size, many]) => {
    const part = layout(big(shape), found.axis, size, packing, found.squeeze);
    return [size, many, part.shape, part.bytes, part.runs, part.run];
  });
  return [found.axis, parts];
});
console.log(JSON.stringify(answers, (_, value) => (typeof value === "bigint" ? String(value) : value)));
