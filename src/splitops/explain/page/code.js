"use strict";
// The code of a split with splitops, NumPy, PyTorch, ONNX and OpenVINO.

const MOST_LISTED = 32;

/** Return the code of a split by library. If there are very many parts, it does not list their sizes. */
function code({ row: operator, shape, way, numbers, keepdims }, found) {
  const many = found.count > BigInt(MOST_LISTED), sizes = [];
  for (const [size, times] of found.runs) for (let i = 0n; !many && i < times; i++) sizes.push(size);
  const list = many ? "sizes" : `[${sizes.join(", ")}]`, axis = found.axis;
  const cuts = many ? "np.cumsum(sizes)[:-1]" : `[${sizes.slice(0, -1).map(((at) => (size) => (at += size))(0n)).join(", ")}]`;
  const names = many ? "parts" : sizes.map((_, i) => `p${i}`).join(", ") || "none";
  const given = way === "sizes" ? `[${numbers.join(", ")}]` : way === "ones" ? "" : `${numbers[0]}`;
  const squeezed = (text) => (found.squeeze ? `[np.squeeze(part, ${axis}) for part in ${text}]` : text);
  const none = found.count === 0n;
  const onnx = operator.sequence
    ? `s = SplitToSequence<axis = ${axis}${way === "ones" ? `, keepdims = ${Number(keepdims)}` : ""}>(x${way === "ones" ? "" : ", split"})${way === "ones" ? "" : `   # split = ${given}`}`
    : way === "parts"
      ? `${names} = Split<axis = ${axis}${operator.attribute ? `, num_outputs = ${given}` : ""}>(x)`
      : operator.input ? `${names} = Split<axis = ${axis}>(x, split)   # split = ${list}` : `${names} = Split<axis = ${axis}, split = ${list}>(x)`;
  const equal = found.runs.length === 1 && found.count > 0n;
  return {
    splitops: operator.openvino
      ? way === "parts" ? `splitops.openvino.split(x, ${axis}, ${given})` : `splitops.openvino.variadic_split(x, ${axis}, ${given})`
      : operator.sequence
        ? `splitops.onnx.split_to_sequence(x${given && `, ${given}`}, axis=${axis}${way === "ones" && !keepdims ? ", keepdims=0" : ""}, opset=${operator.opset})`
        : `splitops.onnx.split(x, ${way === "sizes" ? given : `num_outputs=${given}`}, axis=${axis}, opset=${operator.opset})`,
    NumPy: none ? "[]" : squeezed(`np.split(x, ${cuts}, axis=${axis})`),
    PyTorch: none ? "[]" : found.squeeze ? `torch.unbind(x, dim=${axis})` : `torch.split(x, ${list}, dim=${axis})`,
    ONNX: operator.openvino ? `${names} = Split<axis = ${axis}>(x, split)   # split = ${list}` : onnx,
    OpenVINO: none ? "none: it returns at least one part"
      : equal ? `ov.opset1.split(x, ${axis}, ${found.count})` : `ov.opset1.variadic_split(x, ${axis}, ${list})`,
  };
}

if (typeof module !== "undefined") module.exports = { code };
