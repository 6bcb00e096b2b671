// Runs cases with OpenAI's client for Node: `node openai_node.mjs FOLDER URL`, where FOLDER holds
// node_modules. Cases come as JSON on standard input; what the client gave goes to standard output.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const [folder, url] = process.argv.slice(2);
const OpenAI = createRequire(`${folder}/`)("openai");
const HELPER = "chat.completions.stream";

function bound(client, call) {
  const path = call.split(".");
  const name = path.pop();
  const owner = path.reduce((object, key) => object[key], client);
  return owner[name].bind(owner);
}

async function run(client, { call, model, arguments: given }) {
  if (call === "post") {
    const { path, ...body } = given;
    return client.post(url + path, { body: { ...body, model } });
  }
  const body = { ...given, model };
  if (call === "audio.transcriptions.create") {
    const wave = Buffer.from("RIFF$\0\0\0WAVEfmt ");
    return client.audio.transcriptions.create({
      ...body,
      file: await OpenAI.toFile(wave, "a.wav"),
    });
  }
  if (call === HELPER) {
    const events = [];
    const stream = bound(client, call)(body);
    for await (const event of stream) events.push(event);
    return { events, final: await stream.finalChatCompletion() };
  }
  const value = await bound(client, call)(body);
  if (!body.stream) return value;
  const events = [];
  for await (const event of value) events.push(event);
  return events;
}

const results = {};
for (const given of JSON.parse(readFileSync(0, "utf8"))) {
  const client = new OpenAI({
    baseURL: `${url}/v1`,
    apiKey: "sk-any",
    maxRetries: 0,
    timeout: 60000,
    defaultHeaders: { "x-case": given.name },
  });
  try {
    results[given.name] = { async: await run(client, given) };
  } catch (error) {
    const told = {
      class: error.constructor.name,
      status: error.status ?? null,
      message: error.message,
      body: error.error ?? null,
      retry_after: error.headers?.get("retry-after") ?? null,
    };
    results[given.name] = { async: { error: told } };
  }
}
process.stdout.write(JSON.stringify(results));
