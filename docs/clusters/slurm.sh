#!/bin/bash
# Train on several machines with eight GPUs each under Slurm: sbatch --nodes 2 docs/clusters/slurm.sh
# Each machine runs one torchrun. SIGTERM arrives two minutes before the time limit, so that a checkpoint is saved.
#SBATCH --job-name=headwise
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
set -euo pipefail

out=runs/big
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
resume=()
[ -e "$out/config.json" ] && resume=(--resume) # resume after a resubmission or requeue
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=100      # seconds to write the last checkpoint

srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 8 --max-restarts 3 \
    --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:29500" \
    -m headwise train --recipe big --train corpus.en corpus.de --valid 1% --out "$out" "${resume[@]}"
