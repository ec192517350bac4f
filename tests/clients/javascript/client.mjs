// Drives a server with the official JavaScript client, unchanged, as a user would: node client.mjs PATH/TO/skerry
//
// Every step states what it expects; the first that fails ends the run.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Meilisearch } from "meilisearch";
import { generateTenantToken } from "meilisearch/token";

const MASTER_KEY = "a-master-key-of-the-client-test";
const HARBOURS = [
  { id: 1, name: "Lerwick", country: "GB", berths: 60, kinds: ["ferry", "fishing"], _geo: { lat: 60.155, lng: -1.145 } },
  { id: 2, name: "Stromness", country: "GB", berths: 25, kinds: ["ferry"], _geo: { lat: 58.964, lng: -3.296 } },
  { id: 3, name: "Tórshavn", country: "FO", berths: 80, kinds: ["ferry", "cargo"], _geo: { lat: 62.007, lng: -6.769 } },
  { id: 4, name: "Bergen", country: "NO", berths: 210, kinds: ["cargo", "cruise"], _geo: { lat: 60.397, lng: 5.318 } },
];

async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

async function start(binary, folder, more = []) {
  const host = `http://127.0.0.1:${await freePort()}`;
  const data = join(folder, more.length ? "restored" : "data");
  const options = ["--http-addr", host.slice(7), "--db-path", data, "--dump-dir", join(folder, "dumps"), "--master-key", MASTER_KEY];
  const server = spawn(binary, [...options, ...more], { stdio: "ignore", cwd: folder });
  const client = new Meilisearch({ host, apiKey: MASTER_KEY });
  for (let tries = 0; tries < 500; tries++) {
    if (await client.isHealthy()) return { server, client, host };
    assert.equal(server.exitCode, null, "the server did not start");
    await new Promise((later) => setTimeout(later, 20));
  }
  throw new Error("the server did not answer");
}

async function stop(server) {
  const gone = new Promise((done) => server.once("exit", done));
  server.kill("SIGTERM");
  await gone;
}

async function succeeds(task) {
  const done = await task.waitTask();
  assert.equal(done.status, "succeeded", JSON.stringify(done.error));
  return done;
}

const refusedWith = (code) => (error) => error.cause?.code === code || assert.fail(`${error}: ${JSON.stringify(error.cause)}`);

async function documents({ client }) {
  const index = client.index("harbours");
  await succeeds(client.createIndex("harbours", { primaryKey: "id" }));
  const task = await succeeds(index.addDocuments(HARBOURS));
  assert.deepEqual(task.details, { receivedDocuments: 4, indexedDocuments: 4 });
  assert.equal((await index.getDocument(3)).name, "Tórshavn");
  assert.deepEqual((await index.getDocuments({ limit: 2, fields: ["id"] })).results, [{ id: 1 }, { id: 2 }]);
  await succeeds(index.updateDocuments([{ id: 2, berths: 30 }]));
  assert.equal((await index.getDocument(2)).berths, 30);
  await succeeds(index.addDocumentsFromString('{"id":9,"name":"Nowhere"}\n', "application/x-ndjson"));
  await succeeds(index.deleteDocument(9));
  assert.equal((await index.getStats()).numberOfDocuments, 4);
  await assert.rejects(index.getDocument(9), refusedWith("document_not_found"));
}

async function settings({ client }) {
  const index = client.index("harbours");
  const filterableAttributes = ["country", "berths", "_geo", { attributePatterns: ["kinds"], features: { facetSearch: true, filter: { equality: true, comparison: false } } }];
  await succeeds(index.updateSettings({ filterableAttributes, sortableAttributes: ["berths", "_geo"], synonyms: { port: ["harbour"] } }));
  assert.deepEqual((await index.getSettings()).filterableAttributes, filterableAttributes);
  await succeeds(index.updateTypoTolerance({ minWordSizeForTypos: { oneTypo: 4, twoTypos: 8 } }));
  assert.equal((await index.getTypoTolerance()).minWordSizeForTypos.oneTypo, 4);
  await succeeds(index.updateStopWords(["of", "the"]));
  assert.deepEqual(await index.getStopWords(), ["of", "the"]);
  await succeeds(index.resetStopWords());
  assert.deepEqual(await index.getStopWords(), []);
  await assert.rejects(index.updateRankingRules(["nonsense"]), refusedWith("invalid_settings_ranking_rules"));
}

async function searches({ client }) {
  const index = client.index("harbours");
  const ids = async (q, options) => (await index.search(q, options)).hits.map((hit) => hit.id);
  assert.deepEqual(await ids("lerwik"), [1], "one typo");
  assert.deepEqual(await ids("torsh"), [3], "the beginning of a word, without its accent");
  assert.deepEqual(await ids("", { filter: "country = GB AND berths > 40" }), [1]);
  assert.deepEqual(await ids("", { filter: [["kinds = cargo", "kinds = cruise"], "berths < 100"] }), [3]);
  assert.deepEqual(await ids("", { filter: "_geoRadius(60.155, -1.145, 200000)" }), [1, 2]);
  assert.deepEqual(await ids("", { sort: ["berths:desc"], limit: 2 }), [4, 3]);
  assert.deepEqual(await ids("", { sort: ["_geoPoint(60.397, 5.318):asc"] }), [4, 1, 2, 3]);
  const found = await index.search("", { facets: ["country", "berths"], hitsPerPage: 2, page: 2 });
  assert.deepEqual([found.totalHits, found.totalPages, found.hits.length], [4, 2, 2]);
  assert.deepEqual(found.facetDistribution.country, { FO: 1, GB: 2, NO: 1 });
  assert.deepEqual(found.facetStats.berths, { min: 30, max: 210 });
  const shown = await index.searchGet("bergen", { attributesToHighlight: ["name"], showRankingScore: true });
  assert.equal(shown.hits[0]._formatted.name, "<em>Bergen</em>");
  assert.ok(shown.hits[0]._rankingScore > 0.9);
  const values = await index.searchForFacetValues({ facetName: "kinds", facetQuery: "c" });
  assert.deepEqual(values.facetHits, [{ value: "cargo", count: 2 }, { value: "cruise", count: 1 }]);
  const many = await client.multiSearch({ queries: [{ indexUid: "harbours", q: "bergen" }, { indexUid: "harbours", q: "lerwick" }] });
  assert.deepEqual(many.results.map((result) => result.hits[0].id), [4, 1]);
  const merged = await client.multiSearch({ federation: {}, queries: [{ indexUid: "harbours", q: "bergen" }, { indexUid: "harbours", q: "lerwick" }] });
  assert.deepEqual(merged.hits.map((hit) => hit.id), [4, 1]);
  await assert.rejects(index.search("", { filter: "name = x" }), refusedWith("invalid_search_filter"));
}

async function keysAndTokens({ client, host }) {
  const key = await client.createKey({ description: "reads harbours", actions: ["search"], indexes: ["harbours"], expiresAt: null });
  const reader = new Meilisearch({ host, apiKey: key.key });
  assert.equal((await reader.index("harbours").search("")).hits.length, 4);
  await assert.rejects(reader.index("harbours").getSettings(), refusedWith("invalid_api_key"));
  const token = await generateTenantToken({ apiKey: key.key, apiKeyUid: key.uid, searchRules: { harbours: { filter: "country = GB" } } });
  const tenant = new Meilisearch({ host, apiKey: token });
  assert.deepEqual((await tenant.index("harbours").search("")).hits.map((hit) => hit.id), [1, 2]);
  await client.deleteKey(key.uid);
  await assert.rejects(tenant.index("harbours").search(""), refusedWith("invalid_api_key"));
}

async function tasks({ client }) {
  const added = await client.tasks.getTasks({ indexUids: ["harbours"], types: ["documentAdditionOrUpdate"] });
  assert.equal(added.total, 3);
  const failed = await client.deleteIndex("absent").waitTask();
  assert.deepEqual([failed.status, failed.error.code], ["failed", "index_not_found"]);
  await succeeds(client.createIndex("other"));
  await succeeds(client.swapIndexes([{ indexes: ["harbours", "other"] }]));
  assert.equal((await client.index("other").getStats()).numberOfDocuments, 4);
  await succeeds(client.swapIndexes([{ indexes: ["harbours", "other"] }]));
  assert.ok((await client.batches.getBatches()).total > 5);
}

async function dumps({ client }, binary, folder) {
  await succeeds(client.createDump());
  const [dump] = await readdir(join(folder, "dumps"));
  const restored = await start(binary, folder, ["--import-dump", join(folder, "dumps", dump)]);
  try {
    const index = restored.client.index("harbours");
    assert.deepEqual((await index.search("lerwik", { filter: "country = GB" })).hits.map((hit) => hit.id), [1]);
    assert.deepEqual(await index.getSettings(), await client.index("harbours").getSettings());
  } finally {
    await stop(restored.server);
  }
}

const [binary] = process.argv.slice(2);
const folder = await mkdtemp(join(tmpdir(), "skerry-javascript-"));
const started = await start(binary, folder);
const steps = [documents, settings, searches, keysAndTokens, tasks, dumps];
try {
  for (const step of steps) await step(started, binary, folder);
  console.log(`javascript client: ${steps.length} passed, 0 failed`);
} finally {
  await stop(started.server);
  await rm(folder, { recursive: true, force: true });
}
