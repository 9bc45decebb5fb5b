"""A model in this process: many replies at once, and prompts that begin alike.

    pip install '.[local]' && python benchmarks/decoding.py

Prints how many times faster 16 replies at once are than one by one, and how many times faster
prompts of one task are read than prompts that share nothing.
"""

import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from policy import Message, Sampling
from policy.local import Local, find_model

REPLIES, ROWS, TOKENS = 32, 16, 32
STATEMENT = "Return the second largest of the distinct values in a list of integers. " * 10


async def seconds(rows: int, tokens: int, prompts: list[list[Message]]) -> tuple[float, int]:
    """Wall time of one reply to each prompt, and the tokens that they came to."""
    async with Local(find_model(None), Sampling(1.0, tokens), rows) as policy:
        await policy.probe()  # reads the model into memory
        started = time.perf_counter()
        await asyncio.gather(*(policy.sample(prompt, n) for n, prompt in enumerate(prompts)))
        return time.perf_counter() - started, policy.sampled


def asking(words: str) -> list[Message]:
    return [{"role": "user", "content": words}]


async def main() -> None:
    short = [asking("Write a program that adds two numbers.")] * REPLIES
    for rows in (1, ROWS):
        wall, sampled = await seconds(rows, TOKENS, short)
        print(f"{rows:2} at once: {sampled / wall:6.0f} tokens sampled a second")
        if rows == 1:
            alone = sampled / wall
    print(f"ratio, {ROWS} at once over one by one: {sampled / wall / alone:.2f}")

    alike = [asking(f"{STATEMENT}Attempt {n}.") for n in range(REPLIES)]
    apart = [asking(f"Attempt {n}. {STATEMENT}") for n in range(REPLIES)]
    whole, _ = await seconds(ROWS, 1, apart)
    shared, _ = await seconds(ROWS, 1, alike)
    print(f"{REPLIES} prompts that share nothing {whole:.1f} s, that begin alike {shared:.1f} s")
    print(f"ratio, nothing shared over begun alike: {whole / shared:.2f}")


asyncio.run(main())
