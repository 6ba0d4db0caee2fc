// onnxruntime on Node.js, on the CPU.
import { serve } from "./_node.mjs";

await serve("onnxruntime-node", "cpu");
