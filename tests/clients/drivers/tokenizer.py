"""Writes the demo model's tokenizer as a folder that transformers can load without a hub.

`python -m tests.clients.drivers.tokenizer MODEL.gguf FOLDER`
"""

from __future__ import annotations

import sys
from pathlib import Path

from transformers import AutoTokenizer

if __name__ == "__main__":
    model, folder = Path(sys.argv[1]), sys.argv[2]
    tokenizer = AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name)
    tokenizer.save_pretrained(folder)
