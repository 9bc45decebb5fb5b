"""TRL's GRPOTrainer with the judge as its reward function: two steps of a tiny model on the CPU.

    pip install trl torch && python examples/trl_grpo.py

The model is made from a config and knows nothing, so its replies are noise. So that there is
something to judge, every second reply is replaced by a program that solves the task: what the
trainer was given as rewards is then known, and is checked.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import datasets
import tokenizers
import torch
import transformers
import trl

FOLDER = Path(__file__).resolve().parent.parent
RIGHT = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
TRUTH = json.dumps({"inputs": ["1 2\n", "30 4\n"], "outputs": ["3\n", "34\n"]})
PROMPT = [{"role": "user", "content": "Read two integers and print their sum."}]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def load_reward():
    """By its path: this script could lie anywhere."""
    spec = importlib.util.spec_from_file_location("reward", FOLDER / "reward.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tiny_tokenizer():
    """Bytes and four special tokens."""
    level = tokenizers.pre_tokenizers.ByteLevel
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer, made.decoder = level(False), tokenizers.decoders.ByteLevel()
    special = ["<pad>", "<eos>", "<|im_start|>", "<|im_end|>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=level.alphabet()
    )
    made.train_from_iterator(["print"], trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", chat_template=TEMPLATE
    )


def tiny_model(vocabulary):
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=vocabulary, num_attention_heads=2, **shape)
    )


def train(reward_func, folder):
    """Two steps with groups of four; the log of TRL."""
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    rows = [{"prompt": PROMPT, "ground_truth": TRUTH}] * 8
    args = trl.GRPOConfig(
        output_dir=folder, max_steps=2, per_device_train_batch_size=4, num_generations=4,
        max_completion_length=16, logging_steps=1, report_to=[], use_cpu=True, bf16=False,
        log_completions=False,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=tiny_model(len(tokenizer)), reward_funcs=reward_func, args=args,
        train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer,
    )  # fmt: skip
    trainer.train()
    return trainer.state.log_history


def half_solved(completions):
    """Every second completion is a right program."""
    solved = [{"role": "assistant", "content": RIGHT}]
    return [solved if number % 2 else said for number, said in enumerate(completions)]


def main():
    reward, calls = load_reward(), []

    def sync(prompts, completions, **columns):
        calls.append(reward.trl(prompts, half_solved(completions), **columns))
        return calls[-1]

    async def asynchronous(prompts, completions, **columns):
        calls.append(await reward.trl_async(prompts, half_solved(completions), **columns))
        return calls[-1]

    for function in (sync, asynchronous):
        calls.clear()
        with tempfile.TemporaryDirectory() as folder:
            log = train(function, folder)
        steps = [entry for entry in log if "reward" in entry]
        assert len(steps) == 2, log
        assert calls, "the trainer never called the reward function"
        assert all(call == [0.0, 1.0] * (len(call) // 2) for call in calls), calls
        assert all(entry["reward"] == 0.5 and entry["reward_std"] > 0 for entry in steps), steps
        assert all(entry["accepted"] == 0.5 for entry in steps), steps
        print(f"{function.__name__}: rewards {calls}, logged {[e['reward'] for e in steps]}")

    untouched = {}  # the functions themselves, on what the model says
    for function in (reward.trl, reward.trl_async):
        with tempfile.TemporaryDirectory() as folder:
            log = train(function, folder)
        untouched[function.__name__] = [entry["reward"] for entry in log if "reward" in entry]
        assert untouched[function.__name__] == [0.0, 0.0], log
    print(f"noise: {untouched}")


if __name__ == "__main__":
    sys.exit(main())
