// @ts-check
// Which head of the cross-attention aligns the words of a pair: `clearest_head` and `alignment_row` of view/readings.py.

/** @typedef {{rows: number, columns: number, values: Float32Array}} HeadWeights rows: what the decoder reads; columns: the source */

/**
 * 1 if the row that reads a token attends to its source, 0 if the row that predicts it does: which of the two agrees
 * better with the mean of a layer.
 * @param {HeadWeights} weights
 * @param {HeadWeights | null} usual
 * @param {number[]} columns tokens of words
 */
export function laterBy(weights, usual, columns) {
  const agreement = (/** @type {number} */ later) => {
    let sum = 0;
    for (let row = 0; row + 1 < weights.rows; row++) {
      for (const column of columns) sum += weights.values[(row + later) * weights.columns + column] * (usual?.values[row * weights.columns + column] ?? 0);
    }
    return sum;
  };
  return agreement(1) > agreement(0) ? 1 : 0;
}

/** @param {HeadWeights[]} heads @returns {HeadWeights} */
export function meanOfHeads(heads) {
  return { ...heads[0], values: heads[0].values.map((_, i) => heads.reduce((sum, { values }) => sum + values[i], 0) / heads.length) };
}

/** The layer whose mean usually aligns in the row that predicts: `usual_layer` of view/alignment.py. @param {number} layers how many */
export const usualLayer = (layers) => (layers > 2 ? layers - 2 : layers - 1);

/**
 * The head whose attention goes to each token of the source in turn.
 * @param {HeadWeights[][]} layers heads of each layer
 * @param {number[]} rows that predict a token of a word
 * @param {number[]} columns tokens of words
 */
export function clearestHead(layers, rows, columns) {
  const usual = meanOfHeads(layers[usualLayer(layers.length)]);
  const found = layers.flatMap((heads, layer) =>
    heads.map((weights, head) => {
      const later = laterBy(weights, usual, columns);
      const most = (/** @type {number} */ column) => rows.reduce((most, row) => Math.max(most, weights.values[(row + later) * weights.columns + column]), 0);
      return { layer, head, later, clarity: columns.reduce((sum, column) => sum + most(column), 0) };
    }),
  );
  const { clarity, ...aligns } = found.reduce((best, one) => (one.clarity > best.clarity ? one : best));
  return aligns;
}
