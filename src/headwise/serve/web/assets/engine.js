// @ts-check
// The compiled library with a model in its memory. Structures of C go by the tables that `memory.py` has written.

import { clearestHead, meanOfHeads } from "./aligning.js";

/** @typedef {[name: string, kind: string][]} Layout words of four bytes, each a whole number, an address or a float */
/** @typedef {{tokens: number[], score: number, logProb: number}} Hypothesis */

const LINEARS = ["in_", "memory", "out", "up", "down", "output"]; // fields of structures that point to a `Linear`
const SMALL = 2 ** -13; // so small that its square is lost where products are rounded

export class Engine {
  /** @type {number | undefined} */
  #float32;

  /**
   * @param {any} about the model: see page.py
   * @param {any} library the functions of the compiled library
   * @param {Uint8Array} image
   */
  constructor(about, library, image) {
    this.about = about;
    this.library = library;
    const base = this.memory(library.aligned_alloc(64, image.length + (-image.length & 63)));
    new Uint8Array(library.memory.buffer).set(image, base);
    const words = new Int32Array(library.memory.buffer);
    for (const at of about.pointers) words[(base + at) / 4] += base;
    this.model = base + about.model;
    this.output = this.read("Transformer", this.model).output;
  }

  /**
   * @param {any} about
   * @param {{simd: Uint8Array, relaxed: Uint8Array, image: Uint8Array}} parts
   * @param {(tokens: Int32Array) => void} written is shown the best output so far, after each step
   */
  static async start(about, parts, written) {
    let library = null;
    const page = { written: (/** @type {number} */ at, /** @type {number} */ n) => written(new Int32Array(library.memory.buffer, at, n)) };
    for (const binary of [parts.relaxed, parts.simd]) {
      if (!WebAssembly.validate(binary)) continue;
      const { instance } = await WebAssembly.instantiate(binary, { page });
      library = /** @type {any} */ (instance.exports);
      library._initialize();
      if (library.headwise_exact(SMALL)) return new Engine(about, library, parts.image);
    }
    throw new Error("old-browser");
  }

  /**
   * Search outputs for a source with its end mark, or continuations of a text by a decoder alone, best first.
   * @param {number[]} source
   * @param {{beam_size?: number, pool?: number, temperature?: number, seed?: number}} asked beside the settings of the model; with a seed, the output is sampled
   * @returns {Hypothesis[]}
   */
  search(source, asked = {}) {
    const { options, lists } = this.about;
    const sampled = asked.seed === undefined ? {} : { beam_size: 1, pool: 1 };
    const settings = { ...options, ...asked, ...sampled };
    const limit = this.longest(source.length);
    return this.with((room) => {
      for (const name of ["ends", "suppressed", "suppressed_first"]) {
        Object.assign(settings, { [`${name}.ids`]: room.ints(lists[name]), [`${name}.count`]: lists[name].length });
      }
      const found = { longest: limit, tokens: room.bytes(4 * settings.pool * limit), token_log_probs: room.bytes(4 * settings.pool * limit) };
      for (const name of ["lengths", "log_probs", "scores"]) Object.assign(found, { [name]: room.bytes(4 * settings.pool) });
      const streams = asked.seed === undefined ? 0 : room.ints([asked.seed, 0, 0, 0]); // the seed and one stream, of eight bytes each
      const limits = { min_length: room.ints([this.shortest(source.length, limit)]), max_length: room.ints([limit]), prefix: 0, prefix_length: 0, streams };
      const decoding = room.decoding(source);
      const members = { decodings: room.ints([decoding]), outputs: room.ints([this.output]), count: 1 };
      const [m, o, l, f] = [room.record("Members", members), room.record("Options", settings), room.record("Limits", limits), room.record("Found", found)];
      if (this.library.headwise_search(m, 0, 0, o, l, f)) throw new Error("memory-sentence");
      return this.#hypotheses(/** @type {any} */ (found), settings.pool);
    });
  }

  /** @param {{longest: number, tokens: number, lengths: number, log_probs: number, scores: number}} found @param {number} pool */
  #hypotheses(found, pool) {
    const [words, floats] = [new Int32Array(this.library.memory.buffer), new Float32Array(this.library.memory.buffer)];
    const best = [];
    for (let i = 0; i < pool; i++) {
      const first = found.tokens / 4 + i * found.longest;
      const tokens = Array.from(words.subarray(first, first + words[found.lengths / 4 + i]));
      if (this.about.lists.ends.includes(tokens.at(-1))) tokens.pop();
      const [logProb, score] = [floats[found.log_probs / 4 + i], floats[found.scores / 4 + i]];
      if (words[found.lengths / 4 + i] && !Number.isFinite(logProb)) throw new Error("damaged");
      if (words[found.lengths / 4 + i]) best.push({ tokens, score, logProb });
    }
    if (best.length === 0) throw new Error("damaged");
    return best;
  }

  /**
   * The weights by which each token of an output attends to the source's, of the head that aligns them: the one known of
   * the model, or else the clearest for this pair.
   * @param {number[]} source with its end mark
   * @param {number[]} output without
   * @param {(id: number) => boolean} spells whether a token is part of a word
   */
  align(source, output, spells) {
    const layers = this.crossAttention(source, [this.about.options.bos_id, ...output, this.about.lists.ends[0]]);
    const places = (/** @type {number[]} */ ids) => ids.flatMap((id, place) => (spells(id) ? [place] : []));
    const rows = output.length + 1;
    const predicting = layers.map((heads) => heads.map((weights) => ({ ...weights, rows })));
    const aligns = this.about.aligns ?? clearestHead(predicting, places(output), places(source));
    const { columns, values } = layers[aligns.layer][aligns.head] ?? meanOfHeads(layers[aligns.layer]);
    return { aligns, weights: { rows, columns, values: values.slice(aligns.later * columns, (aligns.later + rows) * columns) } };
  }

  /** The weights of all heads of each layer. @param {number[]} source @param {number[]} read */
  crossAttention(source, read) {
    const { decoder, n_decoder_layers } = this.read("Transformer", this.model);
    const heads = Array.from({ length: n_decoder_layers }, (_, layer) => this.read("Layer", decoder + layer * this.size("Layer"))["cross.heads"]);
    const size = read.length * source.length;
    return this.with((room) => {
      let at = room.bytes(4 * size * heads.reduce((sum, count) => sum + count, 0));
      const recording = room.record("Recording", { cross: at, end: n_decoder_layers });
      const failed = this.library.headwise_read(this.model, room.ints(source), room.ints([source.length]), room.ints(read), room.ints([read.length]), 1, recording);
      if (failed) throw new Error("memory-attention");
      const next = () => ({ rows: read.length, columns: source.length, values: this.floats((at += 4 * size) - 4 * size, size) });
      return heads.map((count) => Array.from({ length: count }, next));
    });
  }

  /** The most pieces of an output, with its end mark: `bounds` of runtime/search/engine.py, `output_bounds` of models/language/limits.py. @param {number} length */
  longest(length) {
    const { factor, extra, max_len, most, longest_source } = this.about.lengths;
    if (this.about.continues) return Math.max(1, Math.min(most, longest_source - length + 1));
    return Math.max(1, Math.min(Math.trunc(factor * length) + extra, max_len || Infinity));
  }

  /** @param {number} length @param {number} limit */
  shortest(length, limit) {
    const { least, least_factor } = this.about.lengths;
    return Math.min(this.about.continues ? least : Math.trunc(least_factor * length), limit - 1);
  }

  /** The address of the model with its rounded weights in float32, so that inputs of products are not rounded, too. Made when first needed. */
  get float32() {
    this.#float32 ??= this.#widened("Transformer", this.model);
    return this.#float32;
  }

  /** Copies of structures and of the layers that they point to. @param {string} name @param {number} at @param {number} [count] @returns {number} */
  #widened(name, at, count = 1) {
    /** @type {Layout} */
    const layout = this.about.layouts[name];
    const [bytes, { n_encoder_layers: encoder, n_decoder_layers: decoder }] = [count * this.size(name), this.read("Transformer", this.model)];
    const copy = this.memory(this.library.malloc(bytes));
    const words = () => new Int32Array(this.library.memory.buffer, copy, bytes / 4);
    words().set(new Int32Array(this.library.memory.buffer, at, bytes / 4));
    for (let i = 0; i < bytes / 4; i++) {
      const [field, from] = [layout[i % layout.length][0], words()[i]];
      if (!from) continue;
      const layers = /** @type {Record<string, number>} */ ({ encoder, decoder })[field];
      const linear = LINEARS.includes(field.split(".").at(-1) ?? "");
      const made = layers ? this.#widened("Layer", from, layers) : linear ? this.memory(this.library.headwise_dequantised(from)) : from;
      words()[i] = made; // in memory that may have moved
    }
    return copy;
  }

  /** @param {number} address */
  memory(address) {
    if (!address) throw new Error("memory-model");
    return address;
  }

  /** The fields of a structure in memory. @param {string} name @param {number} at @returns {Record<string, number>} */
  read(name, at) {
    /** @type {Layout} */
    const layout = this.about.layouts[name];
    const { buffer } = this.library.memory;
    const [words, floats] = [new Int32Array(buffer, at, layout.length), new Float32Array(buffer, at, layout.length)];
    return Object.fromEntries(layout.map(([field, kind], i) => [field, kind === "f" ? floats[i] : words[i]]));
  }

  /** Bytes of a structure. @param {string} name */
  size(name) {
    return 4 * this.about.layouts[name].length;
  }

  /** A copy of numbers in memory. @param {number} at @param {number} count */
  floats(at, count) {
    return new Float32Array(this.library.memory.buffer, at, count).slice();
  }

  /** Do something with memory that is given back behind it. @template T @param {(room: Room) => T} work @returns {T} */
  with(work) {
    const room = new Room(this);
    try {
      return work(room);
    } finally {
      room.giveBack();
    }
  }
}

export class Room {
  /** @param {Engine} engine */
  constructor(engine) {
    this.engine = engine;
    /** @type {(() => void)[]} */
    this.held = [];
  }

  /** @param {number} count */
  bytes(count) {
    const at = this.engine.memory(this.engine.library.malloc(Math.max(count, 4)));
    this.held.push(() => this.engine.library.free(at));
    return at;
  }

  /** @param {number[]} numbers */
  ints(numbers) {
    const at = this.bytes(4 * numbers.length);
    new Int32Array(this.engine.library.memory.buffer).set(numbers, at / 4);
    return at;
  }

  /** @param {string} name @param {any} values */
  record(name, values) {
    /** @type {Layout} */
    const layout = this.engine.about.layouts[name];
    const at = this.bytes(4 * layout.length);
    const [words, floats] = [new Int32Array(this.engine.library.memory.buffer), new Float32Array(this.engine.library.memory.buffer)];
    layout.forEach(([field, kind], i) => ((kind === "f" ? floats : words)[at / 4 + i] = values[field] ?? 0));
    return at;
  }

  /** A source that was encoded, or a text that a decoder alone has read. @param {number[]} source */
  decoding(source) {
    const { library, model, about } = this.engine;
    const [tokens, lengths] = [this.ints(source), this.ints([source.length])];
    const at = this.engine.memory(about.continues ? library.headwise_read_prompts(model, tokens, lengths, 1, 0, 0) : library.headwise_start(model, tokens, lengths, 1, 0));
    this.held.push(() => library.headwise_end(at));
    return at;
  }

  giveBack() {
    for (const end of this.held.reverse()) end();
  }
}
