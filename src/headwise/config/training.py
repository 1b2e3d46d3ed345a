"""The [train] section: the training procedure, section 5 of the paper."""

from dataclasses import dataclass

from headwise.config.setting import ANY, POSITIVE, RATE, SEED, THREADS, choice, setting
from headwise.config.tasks import TASKS

METRICS = {metric for task in TASKS.values() for metric in task.metrics}  # metrics of single tasks


@dataclass(frozen=True)
class TrainConfig:
    """The training procedure; section 5 of the paper."""

    seed: int = setting(1, "random seed of parameters, dropout and batches", SEED)
    max_steps: int = setting(100_000, "optimiser updates (section 5.2)", POSITIVE)
    minutes: float = setting(0.0, "time for the whole run, which then sets max_steps; 0 = no limit")
    tokens_per_batch: int = setting(25_000, "rows x longest side (5.1); target tokens if random", POSITIVE)
    batching: str = choice(("auto", "random", "bucketed"), "auto: random where a CPU packs sequences", task="decoder")
    accumulate: int = setting(1, "batches per update; of each process, if several", POSITIVE)
    learning_rate: float = setting(0.0, "peak; 0 = the paper's, (d_model * warmup_steps) ** -0.5 (section 5.3)")
    warmup_steps: int = setting(4000, "updates of linear rise", POSITIVE)
    schedule: str = choice(("inverse_sqrt", "cosine", "linear", "constant"), "after warm-up; cosine, linear: to 0")
    optimizer: str = choice(("adam", "muon"), "muon: orthogonalised momentum on hidden matrices, Adam on the rest")
    betas: tuple[float, float] = setting((0.9, 0.98), "decay rates of Adam", RATE)
    eps: float = setting(1e-9, "epsilon of Adam", POSITIVE)
    weight_decay: float = setting(0.0, "decoupled, on matrices (AdamW); 0 = Adam as in the paper")
    clip_norm: float = setting(0.0, "largest gradient norm; 0 = no clipping")
    label_smoothing: float = setting(0.1, "epsilon_ls (section 5.4)", RATE, task="tokens")
    lora_rank: int = setting(0, "rank of LoRA adapters of a pretrained model (arXiv:2106.09685); 0 = off")
    lora_alpha: float = setting(16.0, "adapter outputs are scaled by lora_alpha / lora_rank", POSITIVE)
    lora_dropout: float = setting(0.0, "dropout on the inputs of adapters", RATE)
    lora_layers: str = setting("q_proj,v_proj", "layers with adapters: ends of their names, ours or the file's")
    r_drop: float = setting(0.0, "weight alpha of R-Drop's divergence (arXiv:2106.14448); 0 = off", task="decoder")
    alignment_weight: float = setting(
        0.0,
        "weight of the alignment loss (arXiv:1909.02074)",
        only_for={"architecture": ("transformer",)},
        task="translate",
    )
    alignment_layer: int = setting(
        -2,
        "decoder layer whose first head aligns; from 0, -1 = last",
        ANY,
        only_for={"architecture": ("transformer",)},
        task="translate",
    )
    ema: float = setting(0.0, "decay of an exponential moving average of the parameters; 0 = off", RATE)
    average: int = setting(5, "checkpoints averaged into the final model (6.1); 1 = only the last", POSITIVE)
    precision: str = choice(("auto", "float32", "bf16"), "auto: bf16 on CUDA and on CPUs that are faster with it")
    compile: bool = setting(False, "torch.compile the model")
    recompute: bool = setting(
        False,
        "activation checkpointing: less memory, a third more time",
        only_for={"architecture": ("transformer", "conv")},
    )
    deterministic: bool = setting(False, "deterministic algorithms on CUDA, where torch has them; slower")
    threads: int = setting(0, "CPU threads; 0 = all; results on a CPU depend on it", THREADS)
    shard: str = choice(("none", "full", "offload"), "full: processes share one copy (FSDP2); offload: in CPU memory")
    reduce: str = choice(("float32", "bf16"), "format in which processes sum gradients; bf16: half the bytes (DDP)")
    timeout: float = setting(600.0, "seconds that a process waits for the others", POSITIVE)
    log_every: int = setting(100, "updates between logged lines", POSITIVE)
    validate_every: int = setting(1000, "updates between validations", POSITIVE)
    validate_bleu: int = setting(1000, "validation sentences decoded for BLEU; 0 = loss only", task="decoder")
    checkpoint_every: int = setting(1000, "updates between checkpoints", POSITIVE)
    keep_last: int = setting(5, "checkpoints kept on disk beside the best; at least average", POSITIVE)
    best_metric: str = choice(("loss", *sorted(METRICS)), "metric of the best model and of patience")
    patience: int = setting(0, "validations without a better best_metric before the run ends early; 0 = never")
