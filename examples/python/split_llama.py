"""A Llama of transformers whose layers are split over the processes by its own plan: each has half of the heads and of the inner features.

accel launch --num-processes 2 --parallelism-config-tp-size 2 -- python split_llama.py
"""

import accel
import torch
from transformers import LlamaConfig, LlamaForCausalLM

accelerator = accel.Accelerator(cpu=True)
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=64))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
whole = sum(parameter.numel() for parameter in model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
accelerator.print(f"processes: {accelerator.num_processes}")
accelerator.print(f"parameters here: {sum(parameter.numel() for parameter in model.parameters())} of {whole}")

tokens = (torch.arange(128) * 5 % 64).reshape(4, 32)  # the same batch on all of them
for step in range(1, 6):
    loss = model(tokens, labels=tokens).loss
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.print(f"step {step} loss: {loss.item():.4f}")
accelerator.end_training()
