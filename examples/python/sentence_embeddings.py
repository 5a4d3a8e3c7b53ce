"""The embeddings of sentences, one line of numbers for each, by an encoder from a folder of Hugging Face such as all-MiniLM-L6-v2:

    python sentence_embeddings.py FOLDER "A man is eating." "Someone has lunch."

An embedding is the mean over the tokens, of length 1: the product of two says how much they have in common.
"""

import sys

import accel
from accel import Accelerator, Tokenizer, nn

MAX_TOKENS, BATCH = 256, 32

if len(sys.argv) < 3:
    sys.exit(f"usage: {sys.argv[0]} FOLDER SENTENCE...")
folder, *sentences = sys.argv[1:]
accelerator = Accelerator()
tokenizer = Tokenizer(folder)
embedder = nn.sentence_embedding(nn.from_folder(folder)).to(accelerator.device).eval()
with accel.no_grad():
    for first in range(0, len(sentences), BATCH):
        batch = tokenizer.encode_batch(sentences[first : first + BATCH], max_length=MAX_TOKENS)
        for row in embedder(**accel.utils.send_to_device(batch, accelerator.device)).tolist():
            print(*(f"{number:.4f}" for number in row))
accelerator.end_training()
