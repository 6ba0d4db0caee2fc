// onnxruntime in WebAssembly, run by Node.js.
import { serve } from "./_node.mjs";

await serve("onnxruntime-web", "wasm");
