// @ts-check
// The page: asks the server it came from, shows its sentences, and of a chosen one words and alternatives.

import { element } from "./dom.js";
import { changes } from "./pieces.js";

/** @typedef {{source: string, text: string, alternatives: {text: string}[], alignment: number[][] | null}} Sentence */

const byId = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const [form, source, output, status, details] = ["form", "source", "output", "status", "details"].map(byId);
const [start, stop, copy, from, to] = ["translate", "stop", "copy", "from", "to"].map(byId);
const [file, key, swap] = ["file", "key", "swap"].map(byId);
/** @type {{languages: {code: string, name: string, targets: string[]}[], needsKey: boolean, formats: string[]}} */
const { languages, needsKey, formats } = JSON.parse(byId("data").textContent);
const OTHERS = 4; // translations of each sentence that are asked for

/** @type {AbortController | null} */
let asking = null;

/** @param {string} code */
const nameOf = (code) => languages.find((one) => one.code === code)?.name ?? code;
const option = (/** @type {string} */ code, /** @type {string} */ text) => element("option", { value: code }, text);

/** What can be written of a text in the chosen language, the chosen one if it is among that. */
function offerTargets() {
  const reads = languages.filter(({ code, targets }) => targets.length && [code, "auto"].includes(from.value));
  const codes = [...new Set(reads.flatMap(({ targets }) => targets))];
  const before = to.value;
  to.replaceChildren(...codes.map((code) => option(code, nameOf(code))));
  if (codes.includes(before)) to.value = before;
  swap.disabled = !languages.find(({ code }) => code === to.value)?.targets.includes(from.value);
}

/** @param {string} text @param {boolean} [wrong] */
function say(text, wrong = false) {
  status.classList.toggle("error", wrong);
  status.replaceChildren(text);
}

/** @param {boolean} now */
function busy(now) {
  output.setAttribute("aria-busy", String(now));
  start.disabled = now;
  stop.disabled = !now;
}

/**
 * What the server answers; its own words where it refuses.
 * @param {string} address
 * @param {RequestInit} request
 */
async function ask(address, request) {
  const answer = await fetch(address, { method: "POST", ...request, signal: asking?.signal });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

/** Do something that asks the server, one at a time. @param {() => Promise<void>} work */
async function during(work) {
  if (asking) return;
  asking = new AbortController();
  details.hidden = copy.disabled = true;
  busy(true);
  say("Translating …");
  try {
    await work();
  } catch (error) {
    const { name, message } = /** @type {Error} */ (error);
    if (name === "AbortError") say("Stopped.");
    else say(message === "Failed to fetch" ? "The server does not answer." : message, true);
  }
  asking = null;
  busy(false);
}

async function translate() {
  if (!source.value.trim()) return say("There is nothing to translate.");
  await during(async () => {
    const began = performance.now();
    const asked = { text: source.value, source: from.value, target: to.value, n_best: OTHERS, alignment: true, api_key: key.value };
    const found = await ask("v1/translate", { headers: { "content-type": "application/json" }, body: JSON.stringify(asked) });
    const [{ text, sentences }] = found.translations;
    show(text, sentences);
    const read = from.value === "auto" ? `${nameOf(found.source)}, ` : "";
    say(`${read}${((performance.now() - began) / 1000).toFixed(1)} seconds`);
    copy.disabled = false;
  });
}

/** The translation, each sentence a button. @param {string} text @param {Sentence[]} sentences */
function show(text, sentences) {
  /** @type {HTMLButtonElement[]} */
  const buttons = [];
  /** @type {(string | Node)[]} */
  const parts = [];
  let end = 0;
  sentences.forEach((sentence, index) => {
    const place = text.indexOf(sentence.text, end);
    const button = element("button", { type: "button", class: "unit", "aria-pressed": "false", onclick: () => choose(index) }, sentence.text);
    buttons.push(button);
    parts.push(text.slice(end, place), button);
    end = place + sentence.text.length;
  });
  const choose = (/** @type {number} */ index) => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === index)));
    explain(sentences[index]);
  };
  output.replaceChildren(...parts, text.slice(end));
  if (sentences.length) choose(0);
}

/** @param {Sentence} sentence */
function explain({ source, text, alternatives, alignment }) {
  const others = alternatives.filter((one, i) => one.text !== text && alternatives.findIndex((other) => other.text === one.text) === i);
  const words = alignment ? linked(source, text, alignment) : [element("p", { class: "words", dir: "auto" }, source)];
  details.replaceChildren(
    element("section", {}, element("h2", {}, "Word alignment"), ...words, element("p", { class: "note" }, hint(alignment))),
    element("section", {}, element("h2", {}, "Alternatives"), listOf(others.map((one) => one.text), text)),
  );
  details.hidden = false;
}

/** @param {number[][] | null} alignment */
function hint(alignment) {
  return alignment ? "Point at a word, or walk through them with Tab." : "Not available for this model, or for a sentence this long.";
}

/**
 * Both sentences word by word; what belongs to a word is marked while one points at it or has it in focus.
 * @param {string} source
 * @param {string} text
 * @param {number[][]} alignment
 */
function linked(source, text, alignment) {
  const rows = [source, text].map((sentence) => (sentence.match(/\S+/gu) ?? []).map((word) => element("span", { class: "word", tabindex: "0" }, word)));
  rows.forEach((row, side) =>
    row.forEach((node, i) => {
      const partners = alignment.filter((pair) => pair[side] === i).map((pair) => rows[1 - side][pair[1 - side]]);
      const mark = (/** @type {boolean} */ on) => {
        node.classList.toggle("here", on);
        partners.forEach((partner) => partner?.classList.toggle("linked", on));
      };
      for (const event of ["mouseenter", "focus"]) node.addEventListener(event, () => mark(true));
      for (const event of ["mouseleave", "blur"]) node.addEventListener(event, () => mark(false));
    }),
  );
  return rows.map((row) => element("p", { class: "words", dir: "auto" }, ...row.flatMap((node, i) => (i ? [" ", node] : [node]))));
}

/** @param {string[]} others @param {string} best */
function listOf(others, best) {
  if (!others.length) return element("p", { class: "quiet" }, "No alternatives.");
  const words = (/** @type {string} */ text) =>
    changes(text, best).flatMap(({ word, changed }, i) => [i ? " " : "", changed ? element("mark", {}, word) : word]);
  return element("ol", { class: "alternatives" }, ...others.map((text) => element("li", {}, element("span", { dir: "auto" }, ...words(text)))));
}

async function translateFile() {
  const [chosen] = file.files;
  if (!chosen) return;
  await during(async () => {
    const body = new FormData();
    for (const [name, value] of [["file", chosen], ["source", from.value], ["target", to.value], ["api_key", key.value]]) body.append(name, value);
    const { translatedFileUrl } = await ask("translate_file", { body });
    const address = translatedFileUrl.slice(translatedFileUrl.indexOf("download_file/")); // whatever a proxy calls this server
    say("");
    status.append(element("a", { href: address, download: chosen.name }, `${chosen.name}, translated`));
  });
  file.value = "";
}

from.append(option("auto", "Detect the language"), ...languages.filter(({ targets }) => targets.length).map(({ code, name }) => option(code, name)));
from.selectedIndex = 1;
file.accept = formats.join(",");
byId("keyed").hidden = !needsKey;
offerTargets();
from.addEventListener("change", offerTargets);
to.addEventListener("change", offerTargets);
swap.addEventListener("click", () => {
  const before = from.value;
  from.value = to.value;
  offerTargets();
  to.value = before;
  offerTargets();
});
form.addEventListener("submit", (/** @type {Event} */ event) => (event.preventDefault(), translate()));
stop.addEventListener("click", () => asking?.abort());
byId("choose").addEventListener("click", () => file.click());
file.addEventListener("change", translateFile);
copy.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(output.textContent);
    say("Copied.");
  } catch {
    say("This browser does not allow copying; select the text.");
  }
});
addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
  if (event.key === "Escape") asking?.abort();
});
