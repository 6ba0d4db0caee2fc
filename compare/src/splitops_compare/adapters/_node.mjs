// Shared code of the two implementations on Node.js: the messages of splitops_compare.worker, and onnxruntime's API.
// NODE_PATH names the folder node_modules with their packages.

import { closeSync, openSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const INLINE = 1 << 20; // larger tensors go through files
const TEXT = 2000;
const ARRAYS = {
  bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array,
  int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array,
  float16: globalThis.Float16Array ?? Uint16Array, float32: Float32Array, float64: Float64Array,
};

/** Respond as the adapter `name` until the input is closed. `provider` is an execution provider of onnxruntime. */
export async function serve(name, provider) {
  const messages = openSync("/proc/self/fd/1", "w");
  closeSync(1);
  openSync("/proc/self/fd/2", "w"); // becomes 1: output of the implementation is not a message
  const send = (message) => {
    let rest = Buffer.from(JSON.stringify(message) + "\n");
    while (rest.length) rest = rest.subarray(writeSync(messages, rest));
  };
  let ort, setting;
  for await (const line of createInterface({ input: process.stdin })) {
    const message = JSON.parse(line);
    if (message.message === "start") {
      setting = message.setting;
      try {
        ort = createRequire(import.meta.url)(name);
      } catch (error) {
        send({ message: "absent", reason: String(error.message).slice(0, TEXT) });
        continue;
      }
      if (setting.threads === "1" && ort.env.wasm) ort.env.wasm.numThreads = 1;
      send({
        message: "started", protocol: 1, name, kind: "runtime", formats: ["onnx"],
        settings: { optimisation: ["all", "none"], threads: ["all", "1"] },
        versions: { [name]: ort.env.versions[name.split("-")[1]], node: process.versions.node },
      });
    } else {
      send({ message: "response", id: message.id, ...(await run(ort, provider, message, setting)) });
    }
  }
  process.exit(0);
}

async function run(ort, provider, message, setting) {
  let stage = "load";
  const unsupported = Object.values(message.inputs).find(({ dtype }) => dtype !== "string" && !(dtype in ARRAYS));
  if (unsupported) return { outcome: "not applicable", text: `its API lacks tensors of ${unsupported.dtype}` };
  try {
    const session = await ort.InferenceSession.create(message.model, {
      executionProviders: [provider],
      graphOptimizationLevel: setting.optimisation === "none" ? "disabled" : "all",
      logSeverityLevel: 4,
      ...(setting.threads === "1" && { intraOpNumThreads: 1, interOpNumThreads: 1 }),
    });
    stage = "run";
    const feeds = {};
    for (const [input, tensor] of Object.entries(message.inputs)) feeds[input] = read(ort, tensor);
    const results = await session.run(feeds, message.outputs);
    const outputs = message.outputs.map((output, index) => write(results[output], message.folder, index));
    await session.release();
    return { outcome: "ok", outputs };
  } catch (error) {
    if (error instanceof WebAssembly.RuntimeError) {
      console.error(String(error)); // a trap: the module is unusable
      process.exit(70);
    }
    const text = String(error?.message ?? error).slice(0, TEXT);
    return { outcome: "rejected", stage, type: error?.name ?? typeof error, text };
  }
}

function read(ort, { dtype, shape, data, file, strings }) {
  if (strings) return new ort.Tensor("string", strings, shape);
  const bytes = file ? readFileSync(file) : Buffer.from(data, "base64");
  const aligned = Uint8Array.from(bytes).buffer;
  return new ort.Tensor(dtype, new ARRAYS[dtype](aligned), shape);
}

function write(tensor, folder, index) {
  const { type: dtype, dims, data } = tensor;
  const shape = Array.from(dims);
  if (dtype === "string") return { dtype, shape, strings: Array.from(data) };
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  if (bytes.length <= INLINE) return { dtype, shape, data: bytes.toString("base64") };
  const file = `${folder}/output-${index}`;
  writeFileSync(file, bytes);
  return { dtype, shape, file };
}
