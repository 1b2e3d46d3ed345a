// @ts-check
// A walk through one layer and head of a pair: what the library records in one pass, and parameters from its memory.
// The result is what `view/page/walks.py` describes, with the ids and formulas that `page.py` took from there. Weights are
// those of 8 bits that the page has, and everything else is computed in float32.

/** @typedef {import("./engine.js").Engine} Engine */
/** @typedef {import("./engine.js").Room} Room */
/** @typedef {{rows: number, columns: number, values: Float32Array}} Matrix */
/** @typedef {{stack: string, layer: number, head: number}} Where */
/** @typedef {{values: Matrix, weight?: Matrix | null, bias?: Matrix | null, predictions?: {candidates: [number, number][], totals: number[]}[]}} Recorded tokens are ids */

const PANEL = 16; // outputs packed together: simd.h

const range = (/** @type {number} */ count, start = 0) => Array.from({ length: count }, (_, i) => start + i);

/**
 * @param {Engine} engine
 * @param {number[]} source with its end mark; empty for a decoder alone
 * @param {number[]} read what the decoder reads, with its start mark
 * @param {Where} where
 * @param {(ids: number[]) => string[]} names of tokens
 */
export function recordedWalk(engine, source, read, where, names) {
  const { kinds, figure, walks } = engine.about.walk;
  return engine.with((room) => {
    const recorder = new Recorder(engine, room, source, read, where);
    const numbers = new Numbers();
    const steps = walks[where.stack][where.layer].map((/** @type {[number, boolean, boolean, boolean]} */ [kind, inLayer, ofHead, biased]) => {
      const { values, weight, bias, predictions } = recorder.step(kinds[kind].id);
      const likeliest = predictions?.map(({ candidates, totals }) => ({ candidates: names(candidates.map(([id]) => id)).map((name, at) => [name, candidates[at][1]]), totals }));
      return { kind, layer: inLayer ? where.layer : null, head: ofHead ? where.head : null, values: numbers.add(values), weight: numbers.add(weight), bias: biased ? numbers.add(bias) : null, predictions: likeliest ?? null };
    });
    const axes = { src: names(source), tgt: names(read), vocabulary: names(recorder.likely) };
    return { figure, axes, kinds, steps, walks: [{ ...where, steps: range(steps.length) }], numbers: numbers.whole(), note: "", bits: 8 };
  });
}

/** Arrays one after the other. */
class Numbers {
  constructor() {
    /** @type {Float32Array[]} */
    this.arrays = [];
    this.length = 0;
  }

  /** @param {Matrix | null | undefined} matrix */
  add(matrix) {
    if (!matrix) return null;
    this.arrays.push(matrix.values);
    this.length += matrix.values.length;
    return { at: this.length - matrix.values.length, shape: [matrix.rows, matrix.columns] };
  }

  whole() {
    const all = new Float32Array(this.length);
    let at = 0;
    for (const array of this.arrays) {
      all.set(array, at);
      at += array.length;
    }
    return all;
  }
}

class Recorder {
  /** @param {Engine} engine @param {Room} room @param {number[]} source @param {number[]} read @param {Where} where */
  constructor(engine, room, source, read, { stack, layer, head }) {
    Object.assign(this, { engine, room, source });
    this.head = head;
    this.decoder = stack === "decoder";
    this.columns = engine.about.walk.columns; // of a head, among the padded ones
    this.model = engine.read("Transformer", engine.float32);
    this.layer = engine.read("Layer", this.model[stack] + layer * engine.size("Layer"));
    this.rows = this.decoder ? read.length : source.length;
    this.side = this.decoder ? "target" : "source";
    this.norm = `${stack}_norm`;
    /** @type {Map<string, {at: number, rows: number, columns: number}>} */
    this.fields = new Map();
    this.plan();
    const places = Object.fromEntries([...this.fields].map(([name, { at }]) => [`walk.${name}`, at]));
    const recording = room.record("Recording", { ...places, "walk.decoder": Number(this.decoder), "walk.layer": layer, "walk.head": head, end: this.decoder ? this.model.n_decoder_layers : 0 });
    const sources = source.length ? [room.ints(source), room.ints([source.length])] : [0, 0];
    if (engine.library.headwise_read(engine.float32, ...sources, room.ints(read), room.ints([read.length]), 1, recording)) throw new Error("memory-inside");
    /** @type {number[]} */
    this.likely = [];
    this.totals = new Float32Array(this.rows);
    /** @type {Record<string, Recorded>} */
    this.outputs = this.decoder ? this.predict() : {};
  }

  /** Memory for all fields of `Walk`. */
  plan() {
    const [n, width] = [this.rows, this.model.d_model];
    for (const name of ["embeddings", "positions", "sum", "embedded", "input", "top", "output"]) this.field(name, n, width);
    this.field("memory", this.source.length, width);
    for (const place of this.decoder && this.source.length ? ["self_", "cross"] : ["self_"]) {
      const [keys, d_k, d_v] = [place === "cross" ? this.source.length : n, this.layer[`${place}.d_k`], this.layer[`${place}.d_v`]];
      for (const end of ["norm", "out", "add"]) this.field(`${place}.ends.${end}`, n, width);
      for (const name of ["queries", "turned_queries"]) this.field(`${place}.${name}`, n, d_k);
      for (const name of ["keys", "turned_keys"]) this.field(`${place}.${name}`, keys, d_k);
      this.field(`${place}.values`, keys, d_v);
      for (const name of ["scores", "weights"]) this.field(`${place}.${name}`, n, keys, name === "scores" ? Number.NEGATIVE_INFINITY : 0);
      this.field(`${place}.concat`, n, this.layer[`${place}.heads`] * d_v);
    }
    for (const end of ["norm", "out", "add"]) this.field(`ffn.${end}`, n, width);
    this.field("up", n, this.engine.read("Linear", this.layer["ffn.up"]).d_out);
    this.field("inside", n, this.engine.read("Linear", this.layer["ffn.down"]).d_in);
  }

  /** @param {string} name @param {number} rows @param {number} columns @param {number} [value] of what is not written */
  field(name, rows, columns, value = 0) {
    const at = this.room.bytes(4 * rows * columns);
    new Float32Array(this.engine.library.memory.buffer, at, rows * columns).fill(value);
    this.fields.set(name, { at, rows, columns });
  }

  /** What was recorded, of some columns and times a factor. @param {string} name @param {number[] | null} [chosen] @param {number} [factor] @returns {Matrix} */
  recorded(name, chosen = null, factor = 1) {
    const { at, rows, columns } = /** @type {any} */ (this.fields.get(name));
    const all = new Float32Array(this.engine.library.memory.buffer, at, rows * columns);
    const kept = chosen ?? range(columns);
    const values = new Float32Array(rows * kept.length);
    for (let row = 0; row < rows; row++) kept.forEach((column, i) => (values[row * kept.length + i] = all[row * columns + column] * factor));
    return { rows, columns: kept.length, values };
  }

  /** Values and parameters of a step. @param {string} id @returns {Recorded} */
  step(id) {
    const [place, name] = id.split(".");
    if (!name) return this.outside(id);
    return place === "ffn" ? this.feedForward(name) : this.attention(place === "cross_attn" ? "cross" : "self_", name);
  }

  /** A step that belongs to no layer. @param {string} id @returns {Recorded} */
  outside(id) {
    if (this.outputs[id]) return this.outputs[id];
    const names = /** @type {Record<string, string>} */ ({ "position-codes": "positions", embedded: "sum", "embedded-norm": "embedded" });
    const values = this.recorded(names[id] ?? id);
    const norm = /** @type {Record<string, string>} */ ({ "embedded-norm": `${this.side}.norm`, output: this.norm })[id];
    return norm ? { values, ...this.normOf(this.model, norm) } : { values };
  }

  /** @param {string} place @param {string} name @returns {Recorded} */
  attention(place, name) {
    const about = (/** @type {string} */ field) => this.layer[`${place}.${field}`];
    const [cross, d_k, d_v, heads, width] = [place === "cross", about("d_k"), about("d_v"), about("heads"), this.model.d_model];
    const [k, v] = [this.columns[cross ? "cross" : "self"], this.columns.values];
    const [all, keysAt] = [cross ? about("memory") : about("in_"), cross ? 0 : heads * d_k];
    const kvHeads = cross ? heads : about("kv_heads"); // which several heads may share
    const kvHead = Math.floor((this.head * kvHeads) / heads);
    const part = (/** @type {number[]} */ chosen, /** @type {number} */ start) => chosen.map((column) => start + column);
    const joined = range(heads).flatMap((head) => part(v, head * d_v));
    switch (name) {
      case "norm":
        return { values: this.recorded(`${place}.ends.norm`), ...this.normOf(this.layer, `${place}.norm`) };
      case "queries":
        return { values: this.recorded(`${place}.queries`, k), ...this.product(about("in_"), part(k, this.head * d_k), range(width)) };
      case "keys":
        return { values: this.recorded(`${place}.keys`, k), ...this.product(all, part(k, keysAt + kvHead * d_k), range(width)) };
      case "values":
        return { values: this.recorded(`${place}.values`, v), ...this.product(all, part(v, keysAt + kvHeads * d_k + kvHead * d_v), range(width)) };
      case "rotated-queries":
        return { values: this.recorded(`${place}.turned_queries`, k, 1 / about("scale")), weight: this.rates() };
      case "rotated-keys":
        return { values: this.recorded(`${place}.turned_keys`, k), weight: this.rates() };
      case "softmax":
        return { values: this.recorded(`${place}.weights`) };
      case "weighted-sum":
        return { values: this.recorded(`${place}.concat`, part(v, this.head * d_v)) };
      case "concat":
        return { values: this.recorded(`${place}.concat`, joined) };
      case "heads":
        return { values: this.recorded(`${place}.ends.out`), ...this.product(about("out"), range(width), joined) };
      case "add":
        return { values: this.recorded(`${place}.ends.add`) };
      default:
        return { values: this.recorded(`${place}.${name}`) };
    }
  }

  /** @param {string} name @returns {Recorded} */
  feedForward(name) {
    const [{ d_ff, wide }, width] = [{ d_ff: this.fields.get("inside")?.columns ?? 0, wide: this.fields.get("up")?.columns ?? 0 }, this.model.d_model];
    const [up, down] = [this.layer["ffn.up"], this.layer["ffn.down"]];
    if (name === "norm") return { values: this.recorded("ffn.norm"), ...this.normOf(this.layer, "ffn.norm") };
    if (name === "inside") return { values: this.recorded("inside") };
    if (name === "outside") return { values: this.recorded("ffn.out"), ...this.product(down, range(width), range(d_ff)) };
    if (name === "add") return { values: this.recorded("ffn.add") };
    const part = range(d_ff, name === "gate" ? 0 : wide - d_ff); // gates are in front
    return { values: this.recorded("up", part), ...this.product(up, part, range(width)) };
  }

  /** Rates of rotation. @returns {Matrix} */
  rates() {
    const { rates } = this.engine.about.walk;
    return { rows: 1, columns: rates.length, values: Float32Array.from(rates) };
  }

  /** Weight and bias of a norm. @param {any} record @param {string} name */
  normOf(record, name) {
    const vector = (/** @type {number} */ at) => (at ? { rows: 1, columns: this.model.d_model, values: this.engine.floats(at, this.model.d_model) } : null);
    return { weight: vector(record[`${name}.weight`]), bias: vector(record[`${name}.bias`]) };
  }

  /** Some outputs and inputs of a product, whose weights are where `float_index` of products.c says. @param {number} address @param {number[]} outputs @param {number[]} inputs */
  product(address, outputs, inputs) {
    const { d_in, d_out, values: at, bias } = this.engine.read("Linear", address);
    const packed = new Float32Array(this.engine.library.memory.buffer, at, Math.ceil(d_out / PANEL) * PANEL * d_in);
    const values = new Float32Array(inputs.length * outputs.length);
    outputs.forEach((output, o) => inputs.forEach((input, i) => (values[i * outputs.length + o] = packed[(output - (output % PANEL)) * d_in + input * PANEL + (output % PANEL)])));
    const shifts = this.engine.floats(bias, d_out);
    return { weight: { rows: inputs.length, columns: outputs.length, values }, bias: { rows: 1, columns: outputs.length, values: Float32Array.from(outputs, (output) => shifts[output]) } };
  }

  /** The most probable token of each position, then others, most probable first. @returns {Record<string, Recorded>} */
  predict() {
    const { engine, room, rows } = this;
    const { output } = this.model;
    const { d_in, d_out } = engine.read("Linear", output);
    const [states, at] = [this.recorded("output"), room.bytes(4 * rows * d_out)];
    const hidden = room.bytes(4 * rows * d_in);
    new Float32Array(engine.library.memory.buffer).set(states.values, hidden / 4);
    if (engine.library.headwise_linear_forward(output, hidden, rows, at)) throw new Error("memory-inside");
    const logits = engine.floats(at, rows * d_out);
    const best = new Float32Array(d_out);
    const firsts = new Set(); // the most probable token of each row
    const { temperatures } = engine.about.walk.kinds.find((/** @type {any} */ { id }) => id === "probabilities").settings;
    const predictions = [];
    for (let row = 0; row < rows; row++) {
      const own = logits.subarray(row * d_out, (row + 1) * d_out);
      const most = own.reduce((one, other) => Math.max(one, other), Number.NEGATIVE_INFINITY);
      this.totals[row] = most + Math.log(own.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
      own.forEach((logit, token) => (best[token] = Math.max(best[token], Math.exp(logit - this.totals[row]))));
      firsts.add(own.indexOf(most));
      const totals = temperatures.map((/** @type {number} */ heat) => Math.log(own.reduce((sum, logit) => sum + Math.exp((logit - most) / heat), 0)) + (most - this.totals[row]) / heat);
      predictions.push({ candidates: likeliestOf(own, engine.about.walk.candidates).map((id) => /** @type {[number, number]} */ ([id, own[id] - this.totals[row]])), totals });
    }
    for (const token of firsts) best[token] += 1;
    this.likely = range(d_out).sort((one, other) => best[other] - best[one] || one - other).slice(0, Math.max(engine.about.walk.outputs, rows));
    const columns = this.likely.length;
    const chosen = { rows, columns, values: Float32Array.from(range(rows * columns), (i) => logits[Math.floor(i / columns) * d_out + this.likely[i % columns]]) };
    const shares = { rows, columns, values: chosen.values.map((logit, i) => Math.exp(logit - this.totals[Math.floor(i / columns)])) };
    return {
      logits: { values: chosen, ...this.product(output, this.likely, range(d_in)) },
      probabilities: { values: shares, bias: { rows: 1, columns: rows, values: this.totals }, predictions },
    };
  }
}

/** The places of the greatest values, greatest first; the lower place first among equals. @param {Float32Array} values @param {number} count */
function likeliestOf(values, count) {
  /** @type {number[]} */
  const found = [];
  values.forEach((value, at) => {
    if (found.length === count && value <= values[found[count - 1]]) return;
    const behind = found.findIndex((one) => values[one] < value);
    found.splice(behind < 0 ? found.length : behind, 0, at);
    found.length = Math.min(count, found.length);
  });
  return found;
}
