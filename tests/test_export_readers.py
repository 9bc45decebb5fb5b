"""Exported rows as the trainers' own readers load them; skipped where a trainer is missing.

Datasets, TRL and verl are not installed with the tests: pip install datasets, trl with torch, verl.
"""

import copy
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from export import KINDS

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.filterwarnings("ignore")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def library(name: str):
    """A library, or a skip that says what is missing of it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        return pytest.skip(f"{name} is not to be had here: {error}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    library("datasets")
    out = tmp_path_factory.mktemp("readers") / "out"
    command = [sys.executable, str(ROOT / "run.py"), "--dry-run", "--export", ",".join(KINDS)]
    subprocess.run([*command, "--out", str(out)], capture_output=True, check=True)
    return out / "export"


@pytest.fixture(scope="module")
def tokenizer():
    library("torch")
    transformers, tokenizers = library("transformers"), library("tokenizers")
    level = tokenizers.pre_tokenizers.ByteLevel
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer, made.decoder = level(False), tokenizers.decoders.ByteLevel()
    special = ["<pad>", "<eos>", "<|im_start|>", "<|im_end|>"]
    made.train_from_iterator(
        ["print"],
        tokenizers.trainers.BpeTrainer(
            vocab_size=300, special_tokens=special, initial_alphabet=level.alphabet()
        ),
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", chat_template=TEMPLATE
    )


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("messages.jsonl", {"messages", "task_id"}),
        ("messages.parquet", {"messages", "task_id"}),
        ("prompt-completion.jsonl", {"prompt", "completion"}),
        ("pairs.jsonl", {"prompt", "chosen", "rejected"}),
        ("verl-rl.parquet", {"data_source", "prompt", "ability", "reward_model", "extra_info"}),
        ("difficulty.jsonl", {"task_id", "passes", "of", "rescued"}),
    ],
)
def test_datasets_loads_every_file(folder, tmp_path, name, columns):
    kind = "parquet" if name.endswith("parquet") else "json"
    rows = library("datasets").load_dataset(
        kind, data_files=str(folder / name), split="train", cache_dir=str(tmp_path)
    )
    assert len(rows)
    assert set(rows.column_names) >= columns


@pytest.mark.parametrize(
    ("trainer", "name"),
    [("SFT", "messages.jsonl"), ("SFT", "prompt-completion.jsonl"), ("DPO", "pairs.jsonl")],
)
def test_trl_takes_a_step_on_them(folder, tokenizer, tmp_path, trainer, name):
    trl, transformers = library("trl"), library("transformers")
    rows = library("datasets").load_dataset(
        "json", data_files=str(folder / name), split="train", cache_dir=str(tmp_path)
    )
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(tokenizer), num_attention_heads=2, max_position_embeddings=8192, **shape
        )
    )
    more = {"ref_model": copy.deepcopy(model)} if trainer == "DPO" else {}
    args = getattr(trl, f"{trainer}Config")(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=1, report_to=[],
        use_cpu=True, bf16=False, max_length=4096,
    )  # fmt: skip
    done = getattr(trl, f"{trainer}Trainer")(
        model=model, args=args, train_dataset=rows, processing_class=tokenizer, **more
    ).train()
    assert done.global_step == 1
    assert done.training_loss > 0


def test_verl_reads_its_sft_and_rl_rows(folder, tokenizer, tmp_path):
    library("verl")
    config = library("omegaconf").OmegaConf.create
    sft = library("verl.utils.dataset.multiturn_sft_dataset").MultiTurnSFTDataset(
        str(folder / "messages.parquet"),
        tokenizer,
        config({"max_length": 4096, "truncation": "error", "pad_mode": "no_padding"}),
    )
    row = sft[0]
    learned = tokenizer.decode(row["input_ids"][row["loss_mask"].bool()])
    assert "```python" in learned
    assert "Solve this problem" not in learned
    rl = library("verl.utils.dataset.rl_dataset").RLHFDataset(
        str(folder / "verl-rl.parquet"),
        tokenizer,
        config(
            {
                "max_prompt_length": 4096,
                "truncation": "error",
                "cache_dir": str(tmp_path),
                "filter_overlong_prompts": False,
            }
        ),
    )
    assert len(rl) == 12
    assert rl[0]["data_source"] == "swarm-rescue"
    assert '"inputs"' in rl[0]["reward_model"]["ground_truth"]
