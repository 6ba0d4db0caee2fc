// Prints what the site's search finds: node search.mjs SITE < a JSON list of queries. The search is the theme's own worker,
// and the queries go through assets/search.js first, as they do in the page.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

const site = process.argv[2];
const workers = join(site, "assets/javascripts/workers");
const worker = { console };
worker.self = worker;
let answered;
let ask;
worker.postMessage = (message) => answered(message);
worker.addEventListener = (_, listener) => (ask = listener);
vm.runInNewContext(readFileSync(join(workers, readdirSync(workers).find((name) => /^search.*\.js$/.test(name))), "utf8"), worker);
const send = (type, data) =>
  new Promise((resolve) => {
    answered = resolve;
    ask({ data: { type, data } });
  });

const page = {};
page.addEventListener = (_, listener) => (page.typed = listener);
vm.runInNewContext(readFileSync(join(site, "assets/search.js"), "utf8"), page);

await send(0, { ...JSON.parse(readFileSync(join(site, "search/search_index.json"), "utf8")), options: { suggest: false } });
const found = [];
for (const query of JSON.parse(readFileSync(0, "utf8"))) {
  const target = { matches: () => true, value: query };
  page.typed({ target });
  const { data } = await send(2, target.value);
  found.push(data.items.slice(0, 5).map((sections) => sections.map((section) => section.location)));
}
console.log(JSON.stringify(found));
