"""What a walk says about its steps: a name and one sentence each. Formulas depend on the network: see `walk`."""

QUERIES, KEYS, VALUES = "Queries", "Keys", "Values"

# By the id of a step, or by what follows the name of its sublayer.
TEXTS: dict[str, tuple[str, str]] = {
    "embeddings": (
        "Embeddings",
        "Every token is looked up in the embedding table; its row is the vector of the token.",
    ),
    "position-codes": (
        "Positional encoding",
        "Every position has a vector of its own, because attention alone does not know the order of the tokens.",
    ),
    "token-types": ("Token types", "Every segment of the text has a vector of its own (BERT)."),
    "embedded": ("Embedded tokens", "The sum says which token stands where; it is the input of the first layer."),
    "embedded-norm": ("Norm", "The embedded tokens are normalised before the first layer."),
    "embedded-projection": ("Projection", "The embeddings are projected to the width of the layers."),
    "input": ("Input of the layer", "Each layer reads the output of the layer below it."),
    "memory": ("Memory", "The decoder reads the encoder's output, which is computed once for the whole source."),
    "queries": (QUERIES, "The query of a token stands for what the token looks for."),
    "keys": (KEYS, "The key of a token stands for what the token can be found by."),
    "values": (VALUES, "The value of a token is what it passes on to the tokens that attend to it."),
    "cross_attn.queries": (QUERIES, "The queries of cross-attention come from the decoder."),
    "cross_attn.keys": (KEYS, "The keys of cross-attention come from the memory: one for each source token."),
    "cross_attn.values": (VALUES, "The values of cross-attention come from the memory, too."),
    "normed-queries": ("Normalised queries", "The queries of each head are normalised."),
    "normed-keys": ("Normalised keys", "The keys of each head are normalised."),
    "rotated-queries": (
        "Rotated queries",
        "Pairs of dimensions are rotated by an angle that grows with the position (rotary positions).",
    ),
    "rotated-keys": (
        "Rotated keys",
        "Keys are rotated in the same way, so that a score depends on the distance of the two positions.",
    ),
    "relative-bias": (
        "Relative position bias",
        "A trained number for each distance between query and key is added to the scores (T5).",
    ),
    "scores": ("Scores", "A score is the dot product of a query and a key: how well the two fit."),
    "softmax": (
        "Softmax",
        "Softmax turns each row of scores into attention weights, which are positive and sum to one.",
    ),
    "weighted-sum": (
        "Weighted sum",
        "The output of the head is the sum of the values, each multiplied by its attention weight.",
    ),
    "concat": (
        "Concatenation",
        "The outputs of all heads are put side by side; the columns of this head are outlined.",
    ),
    "heads": ("All heads together", "The output projection mixes the heads and returns to the width of the model."),
    "norm": ("Norm", "Each row is normalised to mean 0 and deviation 1, then scaled and shifted by trained numbers."),
    "rms-norm": ("Norm", "Each row is divided by its root mean square, then scaled by trained numbers."),
    "norm-after": ("Norm after the sublayer", "The output of the sublayer is normalised before it is added."),
    "add": ("Add", "The residual connection adds the input of the sublayer to its output."),
    "gate": ("Gate", "A gated feed-forward network has a second projection, which controls the first one."),
    "up": ("Feed-forward, first projection", "Every token is projected to the inner width, on its own."),
    "inside": ("Feed-forward, inside", "The activation function makes the network more than one linear map."),
    "outside": ("Feed-forward, outside", "The second projection returns to the width of the model."),
    "top": ("Output of the last layer", "The remaining layers do the same with weights of their own."),
    "output": ("Output", "This is the result of the whole stack: a vector for each token."),
    "head.dense": ("Head, projection", "The head for masked tokens first projects every vector once more."),
    "head.inside": ("Head, activation", "An activation function follows, as inside the feed-forward network."),
    "head.norm": ("Head, norm", "The head normalises its vectors before it compares them with the vocabulary."),
    "logits": ("Logits", "Every token of the vocabulary gets a score at every position; the best tokens are shown."),
    "probabilities": ("Output probabilities", "Softmax over the whole vocabulary turns the scores into probabilities."),
}


def texts_of(step: str) -> tuple[str, str]:
    """Name and sentence of a step with this id.

    >>> texts_of("self_attn.softmax")[0]
    'Softmax'
    """
    return TEXTS[step] if step in TEXTS else TEXTS[step.partition(".")[2]]
