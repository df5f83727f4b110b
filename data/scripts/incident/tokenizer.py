"""Train the byte-level BPE tokenizer of the shipped case on the corpus' training part.

    $WRITERS data/scripts/incident/tokenizer.py .carry/corpus data/incident/target

Writes `tokenizer.json`, `tokenizer_config.json` and `special_tokens_map.json` in the form that transformers
4 and 5 read alike (class `PreTrainedTokenizerFast`). The same files, corpus and version of `tokenizers`
give the same bytes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from corpus import texts

SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def train(corpus: Path, out: Path, vocabulary: int) -> None:
    """Train the tokenizer and write its files."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL.values()),  # ids 0 to 3, in this order
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for _, text in texts(corpus, "train")), trainer)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
        **SPECIAL,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (out / "special_tokens_map.json").write_text(json.dumps(SPECIAL, indent=2) + "\n")
    print(tokenizer.get_vocab_size(), "tokens in the vocabulary")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--vocabulary", type=int, default=4096)
    arguments = parser.parse_args()
    train(arguments.corpus, arguments.out, arguments.vocabulary)


if __name__ == "__main__":
    main()
