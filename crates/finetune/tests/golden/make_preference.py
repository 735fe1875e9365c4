#!/usr/bin/env python3
"""Losses, rewards and gradients of DPO on the model llama3 of make_models.py and its adapter.

    python3 crates/finetune/tests/golden/make_preference.py

writes preference.safetensors next to this file. It needs torch, transformers and peft; the committed
file is of versions 2.15.0, 5.24.0 and 0.21.2. All is computed in float64. The loss is that of TRL's
DPOTrainer with loss_type "sigmoid" and label smoothing; the reference is the model with its adapter
disabled. Sequences are pairs, chosen and rejected in turns:

- tokens, targets [steps, sequences, seq]: the first tokens have no target, -1, as prompts do;
- loss, rewards [sequences], grad.NAME: of the first batch;
- losses, chosen, rejected, accuracy [steps]: training the adapter as make_models.py does.
"""

import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from make_models import (
    ADAM_EPS, BETAS, DECAY, MAX_NORM, PEAK, VOCAB, learning_rate, load, plain,
)

STEPS, PAIRS, SEQ, PROMPT = 10, 2, 11, 4
BETA, SMOOTHING = 0.3, 0.1


def log_probabilities(model, tokens, targets):
    logits = model(input_ids=tokens, use_cache=False).logits
    scores = torch.log_softmax(logits, dim=-1)
    picked = scores.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (picked * (targets >= 0)).sum(-1)


def dpo(model, tokens, targets):
    policy = log_probabilities(model, tokens, targets)
    with torch.no_grad(), model.disable_adapter():
        reference = log_probabilities(model, tokens, targets)
    ratios = policy - reference
    chosen, rejected = ratios[0::2], ratios[1::2]
    logits = chosen - rejected
    losses = (
        -F.logsigmoid(BETA * logits) * (1 - SMOOTHING) - F.logsigmoid(-BETA * logits) * SMOOTHING
    )
    return losses.mean(), BETA * ratios.detach()


def main():
    torch.set_num_threads(4)
    folder = pathlib.Path(__file__).parent / "models" / "llama3"
    model = load(folder, adapter=True)
    generator = torch.Generator().manual_seed(7)
    shape = (STEPS, 2 * PAIRS, SEQ)
    tokens, targets = (torch.randint(0, VOCAB, shape, generator=generator) for _ in range(2))
    tokens[:, 1::2, :PROMPT] = tokens[:, 0::2, :PROMPT]
    targets[:, :, : PROMPT - 1] = -1
    # Sequences of several lengths.
    targets[:, 1, SEQ - 2 :] = -1
    made = {"tokens": tokens, "targets": targets}
    loss, rewards = dpo(model, tokens[0], targets[0])
    loss.backward()
    made |= {"loss": loss.reshape(1), "rewards": rewards}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            made[f"grad.{plain(name)}"] = parameter.grad.clone()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, lr=PEAK, betas=BETAS, eps=ADAM_EPS, weight_decay=DECAY
    )
    rows = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        loss, rewards = dpo(model, tokens[step], targets[step])
        loss.backward()
        norm = torch.sqrt(sum(parameter.grad.square().sum() for parameter in trained))
        for parameter in trained:
            parameter.grad.mul_(min(1.0, MAX_NORM / norm.item()))
        optimizer.step()
        chosen, rejected = rewards[0::2], rewards[1::2]
        accuracy = (chosen > rejected).double().mean()
        rows.append([loss.item(), chosen.mean().item(), rejected.mean().item(), accuracy.item()])
    names = ["losses", "chosen", "rejected", "accuracy"]
    made |= dict(zip(names, torch.tensor(rows, dtype=torch.float64).T))
    made = {key: value.detach().to(torch.float32).contiguous() for key, value in made.items()}
    save_file(made, pathlib.Path(__file__).parent / "preference.safetensors")
    print({key: made[key].tolist() for key in ["loss", "rewards", *names]})


if __name__ == "__main__":
    main()
