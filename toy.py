"""Twelve toy problems, so that the recipe runs end to end without a download or a model.

Each problem has a reference solution and the usual wrong ideas, all as Python functions from the
input text to the output text. The cases are made by a seeded generator and answered by the
reference; the hidden ones catch the wrong ideas. A function becomes a program by its own source,
which also gives the scripted replies of the dry run.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

Solve = Callable[[str], str]
Inputs = tuple[list[str], list[str]]  # visible (the statement's example first), the others
Cases = list[tuple[str, str]]  # input, output
Reply = tuple[str, str, int, int]  # text, finish_reason, weight when fresh, when informed

EXTRA = 4  # of the other inputs, these last ones are neither visible nor hidden


@dataclass(frozen=True)
class Toy:
    """One toy problem.

    Attributes:
        title: first line of the statement, e.g. "1_A. Sum over the lines".
        rating: 0 when unrated.
        story: the statement between the title and the example.
        solve: the reference solution.
        inputs: makes the inputs from a seeded generator.
        wrong: usual wrong ideas; each fails a hidden case.
    """

    title: str
    rating: int
    story: str
    solve: Solve
    inputs: Callable[[random.Random], Inputs]
    wrong: tuple[Solve, ...]

    @cached_property
    def cases(self) -> tuple[Cases, Cases, Cases]:
        """The visible, hidden and extra cases, the same in every process."""
        visible, others = self.inputs(random.Random(self.title))
        shown = [(text, self.solve(text) + "\n") for text in visible]
        rest = [(text, self.solve(text) + "\n") for text in others]
        return shown, rest[:-EXTRA], rest[-EXTRA:]

    @property
    def statement(self) -> str:
        given, expected = self.cases[0][0]
        return f"{self.title}\n\n{self.story}\n\nExample\n\nInput\n\n{given}\nOutput\n\n{expected}"


def program(solve: Solve) -> str:
    """Return a whole program made of the function's own source."""
    main = f"print({solve.__name__}(sys.stdin.read()))"
    return f"import sys\n\n\n{inspect.getsource(solve)}\n\n{main}\n"


# ---------------------------------------------------------------------------------------------
# 1_A: reading the input


def total(text: str) -> str:
    numbers = list(map(int, text.split()))
    return str(sum(numbers[1 : numbers[0] + 1]))


def total_of_second_line(text: str) -> str:
    return str(sum(map(int, text.splitlines()[1].split())))


def total_inputs(rng: random.Random) -> Inputs:
    def make(count: int, width: int) -> str:
        numbers = [str(rng.randint(-(10**9), 10**9)) for _ in range(count)]
        lines = [" ".join(numbers[i : i + width]) for i in range(0, count, width)]
        return f"{count}\n" + "\n".join(lines) + "\n"

    visible = ["3\n1 2\n3\n", "1\n-5\n", make(4, 4), make(6, 6)]
    return visible, [make(rng.randint(5, 60), rng.randint(1, 12)) for _ in range(14)]


TOTAL = Toy(
    "1_A. Sum over the lines",
    0,
    "You are given n integers. Find their sum.\n\nInput\n\nThe first line contains the integer n "
    "(1 ≤ n ≤ 1000). Then n integers follow, each between -10^9 and 10^9. They may be spread "
    "over any number of lines.\n\nOutput\n\nPrint one integer, the sum.",
    total,
    total_inputs,
    (total_of_second_line,),
)

# ---------------------------------------------------------------------------------------------
# 1_B: the last run and ties


def run(text: str) -> str:
    from itertools import groupby

    runs = [(letter, len(list(group))) for letter, group in groupby(text.strip())]
    letter, length = max(runs, key=lambda item: item[1])
    return f"{letter} {length}"


def run_before_the_last(text: str) -> str:
    word = text.strip()
    best, start = (word[0], 1), 0
    for i in range(1, len(word)):
        if word[i] != word[i - 1]:
            if i - start > best[1]:
                best = (word[i - 1], i - start)
            start = i
    return f"{best[0]} {best[1]}"


def run_as_count(text: str) -> str:
    word = text.strip()
    letter = max(word, key=word.count)
    return f"{letter} {word.count(letter)}"


def run_inputs(rng: random.Random) -> Inputs:
    def make(runs: int) -> str:
        return "".join(rng.choice("abc") * rng.randint(1, 5) for _ in range(runs)) + "\n"

    visible = ["aabbbc\n", "z\n", "xyxxyy\n", "aaab\n"]
    traps = ["abbbb\n", "abababab\n", "aabbaacc\n", "q" * 50 + "\n"]
    return visible, traps + [make(rng.randint(4, 30)) for _ in range(12)]


RUN = Toy(
    "1_B. The longest run",
    800,
    "A run is a group of equal letters that stand next to each other. Find the longest run of a "
    "word. If several runs are the longest, take the first of them.\n\nInput\n\nThe only line "
    "contains a word of 1 to 1000 lowercase letters.\n\nOutput\n\nPrint the letter of the run "
    "and its length, separated by a space.",
    run,
    run_inputs,
    (run_before_the_last, run_as_count),
)

# ---------------------------------------------------------------------------------------------
# 2_A: big integers


def digit(text: str) -> str:
    a, b = map(int, text.split())
    return str(pow(a, b, 10))


def digit_by_cycle(text: str) -> str:
    a, b = map(int, text.split())
    return str((a % 10) ** (b % 4) % 10)


def digit_by_float(text: str) -> str:
    a, b = map(float, text.split())
    return str(pow(int(a), int(b), 10))


def digit_inputs(rng: random.Random) -> Inputs:
    def make(length: int) -> str:
        return f"{rng.randrange(2, 10**length)} {rng.randrange(1, 10**length)}\n"

    visible = ["3 5\n", "2 10\n", "1234567 89\n", "7 8\n"]
    traps = ["12 400\n", "999 1000\n", "5 100000000000000000\n"]
    return visible, traps + [make(rng.choice([9, 18, 40, 200])) for _ in range(14)]


DIGIT = Toy(
    "2_A. Last digit of a power",
    0,
    "Find the last decimal digit of a to the power b.\n\nInput\n\nThe only line contains two "
    "integers a and b (1 ≤ a, b < 10^200).\n\nOutput\n\nPrint one digit.",
    digit,
    digit_inputs,
    (digit_by_cycle, digit_by_float),
)

# ---------------------------------------------------------------------------------------------
# 3_A: counting equal values


def pairs(text: str) -> str:
    from collections import Counter

    n, target, *numbers = map(int, text.split())
    seen: Counter[int] = Counter()
    count = 0
    for number in numbers[:n]:
        count += seen[target - number]
        seen[number] += 1
    return str(count)


def pairs_of_values(text: str) -> str:
    _, target, *numbers = map(int, text.split())
    values = set(numbers)
    return str(sum(target - value in values for value in values) // 2)


def pairs_with_itself(text: str) -> str:
    _, target, *numbers = map(int, text.split())
    return str(sum(numbers.count(target - number) for number in numbers) // 2)


def pairs_inputs(rng: random.Random) -> Inputs:
    def make(count: int, spread: int) -> str:
        numbers = [rng.randint(-spread, spread) for _ in range(count)]
        return f"{count} {2 * rng.choice(numbers)}\n{' '.join(map(str, numbers))}\n"

    visible = ["4 5\n1 4 2 3\n", "3 100\n1 2 3\n", "5 6\n1 5 1 5 2\n", "3 8\n4 1 7\n"]
    return visible, [make(rng.randint(5, 80), rng.choice([2, 5, 30])) for _ in range(14)]


PAIRS = Toy(
    "3_A. Pairs with a given sum",
    1200,
    "Count the pairs of positions i < j with a_i + a_j = s.\n\nInput\n\nThe first line contains "
    "two integers n and s (1 ≤ n ≤ 100000, -10^9 ≤ s ≤ 10^9). The second line contains the "
    "integers a_1 ... a_n (-10^9 ≤ a_i ≤ 10^9).\n\nOutput\n\nPrint the number of pairs.",
    pairs,
    pairs_inputs,
    (pairs_of_values, pairs_with_itself),
)

# ---------------------------------------------------------------------------------------------
# 4_A: binary search on the answer


def ropes(text: str) -> str:
    n, k, *lengths = map(int, text.split())
    low, high = 0, max(lengths[:n])
    while low < high:
        middle = (low + high + 1) // 2
        if sum(length // middle for length in lengths) >= k:
            low = middle
        else:
            high = middle - 1
    return str(low)


def ropes_joined(text: str) -> str:
    _, k, *lengths = map(int, text.split())
    return str(sum(lengths) // k)


def ropes_no_longer_than_shortest(text: str) -> str:
    _, k, *lengths = map(int, text.split())
    low, high = 0, min(lengths)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(length // middle for length in lengths) >= k:
            low = middle
        else:
            high = middle - 1
    return str(low)


def ropes_endless(text: str) -> str:
    _, k, *lengths = map(int, text.split())
    low, high = 1, max(lengths)
    while low < high:
        middle = (low + high) // 2
        if sum(length // middle for length in lengths) >= k:
            low = middle
        else:
            high = middle - 1
    return str(low)


def ropes_inputs(rng: random.Random) -> Inputs:
    def make(count: int, longest: int) -> str:
        lengths = [rng.randint(1, longest) for _ in range(count)]
        pieces = rng.randint(count, 5 * count)
        return f"{count} {pieces}\n{' '.join(map(str, lengths))}\n"

    visible = ["3 4\n8 8 8\n", "2 4\n10 10\n", "1 3\n10\n", "2 3\n7 4\n"]
    traps = ["2 5\n1 1\n", "3 2\n1 100 100\n", "1 1\n1000000000\n"]
    return visible, traps + [make(rng.randint(2, 40), 10 ** rng.randint(1, 9)) for _ in range(12)]


ROPES = Toy(
    "4_A. Cutting ropes",
    1400,
    "You have n ropes and want k pieces of the same whole length, as long as possible. Ropes can "
    "be cut but not joined; what is left over is thrown away.\n\nInput\n\nThe first line contains "
    "two integers n and k (1 ≤ n, k ≤ 100000). The second line contains the n lengths of the "
    "ropes, integers between 1 and 10^9.\n\nOutput\n\nPrint the greatest length of a piece, or 0 "
    "if not even pieces of length 1 are possible.",
    ropes,
    ropes_inputs,
    (ropes_joined, ropes_no_longer_than_shortest),
)

# ---------------------------------------------------------------------------------------------
# 4_B: shortest paths


def route(text: str) -> str:
    from heapq import heappop, heappush

    n, m, *numbers = map(int, text.split())
    roads: list[list[tuple[int, int]]] = [[] for _ in range(n + 1)]
    for i in range(0, 3 * m, 3):
        roads[numbers[i]].append((numbers[i + 1], numbers[i + 2]))
    heap, done = [(0, 1)], set()
    while heap:
        cost, town = heappop(heap)
        if town == n:
            return str(cost)
        if town not in done:
            done.add(town)
            for other, toll in roads[town]:
                heappush(heap, (cost + toll, other))
    return "-1"


def route_of_fewest_roads(text: str) -> str:
    n, m, *numbers = map(int, text.split())
    cost, queue = {1: 0}, [1]
    for town in queue:
        for i in range(0, 3 * m, 3):
            if numbers[i] == town and numbers[i + 1] not in cost:
                cost[numbers[i + 1]] = cost[town] + numbers[i + 2]
                queue.append(numbers[i + 1])
    return str(cost.get(n, -1))


def route_both_ways(text: str) -> str:
    n, m, *numbers = map(int, text.split())
    cost = [0 if town == 1 else 10**18 for town in range(n + 1)]
    for _ in range(n):
        for i in range(0, 3 * m, 3):
            a, b, toll = numbers[i : i + 3]
            cost[a] = min(cost[a], cost[b] + toll)
            cost[b] = min(cost[b], cost[a] + toll)
    return str(cost[n] if cost[n] < 10**18 else -1)


def route_without_dead_ends(text: str) -> str:
    n, m, *numbers = map(int, text.split())
    roads: dict[int, list[tuple[int, int]]] = {}
    for i in range(0, 3 * m, 3):
        roads.setdefault(numbers[i], []).append((numbers[i + 1], numbers[i + 2]))
    best = {1: 0}
    queue = [1]
    for town in queue:
        for other, toll in roads[town]:
            if best[town] + toll < best.get(other, 10**18):
                best[other] = best[town] + toll
                queue.append(other)
    return str(best.get(n, -1))


def route_inputs(rng: random.Random) -> Inputs:
    def make(n: int, m: int) -> str:
        towns = range(1, n + 1)
        roads = [(*rng.sample(towns, 2), rng.randint(1, 100)) for _ in range(m)]
        return f"{n} {m}\n" + "".join(f"{a} {b} {toll}\n" for a, b, toll in roads)

    visible = [
        "3 3\n1 2 2\n2 3 2\n1 3 5\n",
        "2 1\n1 2 7\n",
        "4 4\n1 2 1\n2 1 9\n2 4 3\n3 4 1\n",
        "3 2\n1 2 4\n2 3 4\n",
    ]
    traps = ["3 2\n3 2 1\n2 1 1\n", "4 4\n1 4 9\n1 2 1\n2 3 1\n3 4 1\n", "3 1\n1 2 5\n"]
    made = [make(n, rng.randint(n, 4 * n)) for n in rng.choices(range(4, 30), k=12)]
    return visible, traps + made


ROUTE = Toy(
    "4_B. The cheapest route",
    1900,
    "There are n towns and m one-way roads; each road has a toll. You are in town 1 and want to "
    "get to town n for the smallest sum of tolls.\n\nInput\n\nThe first line contains two "
    "integers n and m (2 ≤ n ≤ 10000, 1 ≤ m ≤ 50000). Each of the next m lines contains a, b and "
    "t: a road leads from town a to town b and its toll is t (1 ≤ t ≤ 10^9).\n\nOutput\n\n"
    "Print the smallest sum, or -1 if town n can't be reached.",
    route,
    route_inputs,
    (route_of_fewest_roads, route_both_ways, route_without_dead_ends),
)

# ---------------------------------------------------------------------------------------------
# 5_A: a greedy with a trap


def talks(text: str) -> str:
    n, *numbers = map(int, text.split())
    free = count = 0
    for end, start in sorted((numbers[2 * i + 1], numbers[2 * i]) for i in range(n)):
        if start >= free:
            free, count = end, count + 1
    return str(count)


def talks_by_start(text: str) -> str:
    n, *numbers = map(int, text.split())
    free = count = 0
    for start, end in sorted((numbers[2 * i], numbers[2 * i + 1]) for i in range(n)):
        if start >= free:
            free, count = end, count + 1
    return str(count)


def talks_shortest_first(text: str) -> str:
    n, *numbers = map(int, text.split())
    items = [(numbers[2 * i], numbers[2 * i + 1]) for i in range(n)]
    taken: list[tuple[int, int]] = []
    for start, end in sorted(items, key=lambda item: item[1] - item[0]):
        if all(end <= a or start >= b for a, b in taken):
            taken.append((start, end))
    return str(len(taken))


def talks_inputs(rng: random.Random) -> Inputs:
    def make(count: int, day: int) -> str:
        starts = [rng.randint(0, day) for _ in range(count)]
        lines = [f"{start} {start + rng.randint(1, day // 3)}\n" for start in starts]
        return f"{count}\n" + "".join(lines)

    visible = ["3\n0 2\n1 3\n2 4\n", "1\n5 6\n", "4\n0 1\n1 2\n2 3\n3 4\n", "2\n0 10\n3 4\n"]
    traps = ["3\n0 10\n1 2\n3 4\n", "3\n0 5\n4 7\n6 11\n", "5\n0 20\n1 3\n3 5\n5 6\n6 9\n"]
    return visible, traps + [make(rng.randint(4, 40), rng.randint(12, 60)) for _ in range(12)]


TALKS = Toy(
    "5_A. Talks in one hall",
    1300,
    "Speakers want the only hall, each from time s to time e. Two talks can't overlap, but one "
    "may start when another ends. How many talks can be held at most?\n\nInput\n\nThe first line "
    "contains n (1 ≤ n ≤ 100000). Each of the next n lines contains the integers s and e "
    "(0 ≤ s < e ≤ 10^9).\n\nOutput\n\nPrint the greatest number of talks.",
    talks,
    talks_inputs,
    (talks_by_start, talks_shortest_first),
)

# ---------------------------------------------------------------------------------------------
# 6_A: longest increasing subsequence


def rising(text: str) -> str:
    from bisect import bisect_left

    n, *numbers = map(int, text.split())
    tails: list[int] = []
    for number in numbers[:n]:
        i = bisect_left(tails, number)
        tails[i : i + 1] = [number]
    return str(len(tails))


def rising_or_equal(text: str) -> str:
    from bisect import bisect_right

    _, *numbers = map(int, text.split())
    tails: list[int] = []
    for number in numbers:
        i = bisect_right(tails, number)
        tails[i : i + 1] = [number]
    return str(len(tails))


def rising_greedily(text: str) -> str:
    _, *numbers = map(int, text.split())
    last, count = numbers[0], 1
    for number in numbers[1:]:
        if number > last:
            last, count = number, count + 1
    return str(count)


def rising_inputs(rng: random.Random) -> Inputs:
    def make(count: int, spread: int) -> str:
        return f"{count}\n{' '.join(str(rng.randint(1, spread)) for _ in range(count))}\n"

    visible = ["5\n1 3 2 4 5\n", "3\n3 2 1\n", "1\n7\n", "4\n2 2 2 2\n", "4\n9 1 2 3\n"]
    return visible, [make(rng.randint(8, 300), 10 ** rng.randint(1, 4)) for _ in range(14)]


RISING = Toy(
    "6_A. The longest climb",
    1700,
    "A hiker walks past n hills from left to right and climbs some of them, each strictly higher "
    "than the one climbed before. How many hills can be climbed at most?\n\nInput\n\nThe first "
    "line contains n (1 ≤ n ≤ 100000). The second line contains the n heights, integers between "
    "1 and 10^9.\n\nOutput\n\nPrint the greatest number of hills.",
    rising,
    rising_inputs,
    (rising_or_equal, rising_greedily),
)

# ---------------------------------------------------------------------------------------------
# 7_A: dynamic programming where greed fails


def coins(text: str) -> str:
    _, amount, *values = map(int, text.split())
    fewest = [0] + [amount + 1] * amount
    for value in values:
        for total in range(value, amount + 1):
            fewest[total] = min(fewest[total], fewest[total - value] + 1)
    return str(fewest[amount] if fewest[amount] <= amount else -1)


def coins_greedily(text: str) -> str:
    _, amount, *values = map(int, text.split())
    count = 0
    for value in sorted(values, reverse=True):
        count += amount // value
        amount %= value
    return str(count if amount == 0 else -1)


def coins_each_once(text: str) -> str:
    _, amount, *values = map(int, text.split())
    fewest = [0] + [amount + 1] * amount
    for value in values:
        for total in range(amount, value - 1, -1):
            fewest[total] = min(fewest[total], fewest[total - value] + 1)
    return str(fewest[amount] if fewest[amount] <= amount else -1)


def coins_inputs(rng: random.Random) -> Inputs:
    def make(kinds: int, amount: int) -> str:
        values = rng.sample(range(2, 60), kinds)
        return f"{kinds} {amount}\n{' '.join(map(str, values))}\n"

    visible = ["3 6\n1 3 4\n", "2 7\n2 4\n", "3 15\n1 5 10\n", "1 9\n3\n", "2 12\n10 2\n"]
    traps = ["3 30\n1 15 25\n", "2 1\n5 7\n", "2 6\n4 3\n"]
    return visible, traps + [make(rng.randint(2, 6), rng.randint(60, 900)) for _ in range(12)]


COINS = Toy(
    "7_A. Few coins",
    1500,
    "A shop has coins of n values and any number of each. Pay exactly the amount s with as few "
    "coins as possible.\n\nInput\n\nThe first line contains the integers n and s (1 ≤ n ≤ 50, "
    "1 ≤ s ≤ 10000). The second line contains the n values, distinct integers between 1 and "
    "10000.\n\nOutput\n\nPrint the smallest number of coins, or -1 if the amount can't be paid.",
    coins,
    coins_inputs,
    (coins_greedily, coins_each_once),
)

# ---------------------------------------------------------------------------------------------
# 8_A: prefix sums and hashing


def segments(text: str) -> str:
    from collections import Counter

    n, k, *numbers = map(int, text.split())
    seen, prefix, count = Counter([0]), 0, 0
    for number in numbers[:n]:
        prefix = (prefix + number) % k
        count += seen[prefix]
        seen[prefix] += 1
    return str(count)


def segments_without_empty_prefix(text: str) -> str:
    from collections import Counter

    _, k, *numbers = map(int, text.split())
    seen: Counter[int] = Counter()
    prefix = count = 0
    for number in numbers:
        prefix = (prefix + number) % k
        count += seen[prefix]
        seen[prefix] += 1
    return str(count)


def segments_with_signed_remainder(text: str) -> str:
    from collections import Counter
    from math import fmod

    _, k, *numbers = map(int, text.split())
    seen, prefix, count = Counter([0]), 0, 0
    for number in numbers:
        prefix = int(fmod(prefix + number, k))
        count += seen[prefix]
        seen[prefix] += 1
    return str(count)


def segments_inputs(rng: random.Random) -> Inputs:
    def make(count: int, k: int) -> str:
        return f"{count} {k}\n{' '.join(str(rng.randint(-99, 99)) for _ in range(count))}\n"

    visible = ["4 3\n1 2 3 4\n", "3 5\n1 1 1\n", "3 7\n2 3 4\n", "4 10\n11 5 6 -6\n"]
    return visible, [make(rng.randint(10, 200), rng.randint(2, 12)) for _ in range(14)]


SEGMENTS = Toy(
    "8_A. Segments divisible by k",
    1600,
    "Count the segments of consecutive elements of an array whose sum is divisible by k."
    "\n\nInput\n\nThe first line contains n and k (1 ≤ n ≤ 200000, 1 ≤ k ≤ 10^9). The second "
    "line contains n integers between -10^9 and 10^9.\n\nOutput\n\nPrint the number of segments.",
    segments,
    segments_inputs,
    (segments_without_empty_prefix, segments_with_signed_remainder),
)

# ---------------------------------------------------------------------------------------------
# 9_A: dynamic programming over intervals


def mirror(text: str) -> str:
    word = text.strip()
    # Longest common subsequence of the word and its reverse; the other letters need a partner.
    row = [0] * (len(word) + 1)
    for letter in word:
        above = row
        row = [0]
        for i, other in enumerate(reversed(word)):
            row.append(above[i] + 1 if letter == other else max(above[i + 1], row[i]))
    return str(len(word) - row[-1])


def mirror_by_mismatches(text: str) -> str:
    word = text.strip()
    return str(sum(word[i] != word[-1 - i] for i in range(len(word) // 2)))


def mirror_by_odd_letters(text: str) -> str:
    word = text.strip()
    odd = sum(word.count(letter) % 2 for letter in set(word))
    return str(max(odd - 1, 0))


def mirror_past_the_end(text: str) -> str:
    word = text.strip()
    count = 0
    for i in range(len(word)):
        if word[i] != word[len(word) - i]:
            count += 1
    return str(count // 2)


def mirror_itself(text: str) -> str:
    word = text.strip()
    return word + word[-2::-1]


def mirror_inputs(rng: random.Random) -> Inputs:
    def make(length: int) -> str:
        return "".join(rng.choice("abcd") for _ in range(length)) + "\n"

    visible = ["abca\n", "level\n", "ab\n", "x\n", "abcba\n"]
    return visible, [make(rng.randint(6, 80)) for _ in range(14)]


MIRROR = Toy(
    "9_A. Make a mirror word",
    2300,
    "A mirror word reads the same from both ends. In one move you insert one letter anywhere in "
    "the word. How few moves turn the word into a mirror word?\n\nInput\n\nThe only line contains "
    "a word of 1 to 1000 lowercase letters.\n\nOutput\n\nPrint the smallest number of moves.",
    mirror,
    mirror_inputs,
    (mirror_by_mismatches, mirror_by_odd_letters, mirror_past_the_end, mirror_itself),
)

# ---------------------------------------------------------------------------------------------
# 10_A: a recurrence too long to walk


def stairs(text: str) -> str:
    modulus = 10**9 + 7
    # Fast doubling: a, b = F(k), F(k + 1) for the leading bits k of n.
    a, b = 0, 1
    for bit in bin(int(text) + 1)[2:]:
        a, b = a * (2 * b - a) % modulus, (a * a + b * b) % modulus
        if bit == "1":
            a, b = b, (a + b) % modulus
    return str(a)


def stairs_one_by_one(text: str) -> str:
    n = int(text)
    a, b = 1, 1
    while n > 1:
        a, b, n = b, (a + b) % (10**9 + 7), n - 1
    return str(b)


def stairs_by_golden_ratio(text: str) -> str:
    n = int(text) + 1
    root = 5**0.5
    return str(round(((1 + root) / 2) ** n / root) % (10**9 + 7))


def stairs_without_modulus(text: str) -> str:
    a, b = 1, 1
    for _ in range(min(int(text), 1000) - 1):
        a, b = b, a + b
    return str(b)


def stairs_inputs(rng: random.Random) -> Inputs:
    visible = ["3\n", "1\n", "30\n", "1000000000000000000\n", "50\n"]
    traps = ["2\n", "100\n", "999999999999999999\n"]
    return visible, traps + [f"{rng.randint(1, 10 ** rng.randint(2, 18))}\n" for _ in range(12)]


STAIRS = Toy(
    "10_A. A very long staircase",
    2400,
    "You climb a staircase of n steps, one or two steps at a time. In how many ways can you do "
    "it? Two ways differ if their sequences of ones and twos differ.\n\nInput\n\nThe only line "
    "contains n (1 ≤ n ≤ 10^18).\n\nOutput\n\nPrint the number of ways modulo 10^9 + 7.",
    stairs,
    stairs_inputs,
    (stairs_one_by_one, stairs_by_golden_ratio, stairs_without_modulus),
)

TOY = (
    TOTAL,
    RUN,
    DIGIT,
    PAIRS,
    ROPES,
    ROUTE,
    TALKS,
    RISING,
    COINS,
    SEGMENTS,
    MIRROR,
    STAIRS,
)

# ---------------------------------------------------------------------------------------------
# Scripted replies of the dry run


def replies() -> dict[str, list[Reply]]:
    """Return for each title what the scripted policy may reply, and how likely it is.

    The first weight holds for a prompt that shows no attempt, the second for one that shows one.
    """
    return {
        item.title: [
            (*form(solve), fresh, informed) for form, solve, fresh, informed in _SCRIPT[item.title]
        ]
        for item in TOY
    }


def _fenced(solve: Solve) -> tuple[str, str]:
    return f"```python\n{program(solve)}```", "stop"


def _bare(solve: Solve) -> tuple[str, str]:
    return program(solve), "stop"


def _explained(solve: Solve) -> tuple[str, str]:
    """Several fences, and the program is neither the first nor the last."""
    return (
        "Take an input like this one:\n\n```\n3\n1 2 3\n```\n\nHere is the whole program.\n\n"
        f"```python\n{program(solve)}```\n\nIt prints something like\n\n```text\n6\n```\n"
    ), "stop"


def _cut(solve: Solve) -> tuple[str, str]:
    """The token limit ends the reply in the middle of the program."""
    text = program(solve)
    return f"Let me write the program.\n\n```python\n{text[: len(text) * 2 // 3]}", "length"


def _no_program(solve: Solve) -> tuple[str, str]:
    name = solve.__name__.replace("_", " ")
    return f"I would think about the {name} first, and then try some small examples.", "stop"


_Line = tuple[Callable[[Solve], tuple[str, str]], Solve, int, int]

# Form of the reply, what it holds, weight when fresh, weight when informed. The easy tasks come
# first; from 6_A on most groups fail. 7_A and 10_A need a look at an attempt, 8_A is better off
# without one, and 9_A is never solved: no reply of its passes a visible case.
_SCRIPT: dict[str, tuple[_Line, ...]] = {
    TOTAL.title: (
        (_fenced, total, 50, 50),
        (_explained, total, 30, 30),
        (_bare, total, 20, 20),
    ),
    RUN.title: (
        (_fenced, run, 50, 50),
        (_explained, run, 35, 40),
        (_fenced, run_before_the_last, 15, 10),
    ),
    DIGIT.title: (
        (_fenced, digit, 40, 50),
        (_bare, digit, 30, 30),
        (_fenced, digit_by_cycle, 20, 10),
        (_explained, digit_by_float, 10, 10),
    ),
    PAIRS.title: (
        (_explained, pairs, 55, 60),
        (_fenced, pairs_with_itself, 20, 20),
        (_fenced, pairs_of_values, 15, 10),
        (_cut, pairs, 10, 10),
    ),
    ROPES.title: (
        (_fenced, ropes, 40, 50),
        (_fenced, ropes_endless, 20, 10),
        (_fenced, ropes_joined, 20, 20),
        (_explained, ropes_no_longer_than_shortest, 20, 20),
    ),
    ROUTE.title: (
        (_fenced, route, 30, 40),
        (_fenced, route_without_dead_ends, 30, 20),
        (_explained, route_of_fewest_roads, 20, 20),
        (_fenced, route_both_ways, 20, 20),
    ),
    TALKS.title: (
        (_explained, talks, 15, 30),
        (_fenced, talks_by_start, 40, 30),
        (_fenced, talks_shortest_first, 35, 40),
        (_no_program, talks, 10, 0),
    ),
    RISING.title: (
        (_fenced, rising, 3, 10),
        (_fenced, rising_or_equal, 40, 50),
        (_fenced, rising_greedily, 40, 30),
        (_cut, rising, 17, 10),
    ),
    COINS.title: (
        (_fenced, coins, 0, 8),
        (_explained, coins_greedily, 70, 50),
        (_bare, coins_each_once, 30, 42),
    ),
    SEGMENTS.title: (
        (_explained, segments, 5, 1),
        (_fenced, segments_without_empty_prefix, 45, 50),
        (_fenced, segments_with_signed_remainder, 40, 49),
        (_no_program, segments, 10, 0),
    ),
    MIRROR.title: (
        (_explained, mirror_itself, 40, 40),
        (_fenced, mirror_past_the_end, 30, 40),
        (_cut, mirror, 20, 20),
        (_no_program, mirror, 10, 0),
    ),
    STAIRS.title: (
        (_fenced, stairs, 0, 5),
        (_fenced, stairs_one_by_one, 50, 45),
        (_bare, stairs_by_golden_ratio, 30, 30),
        (_explained, stairs_without_modulus, 20, 20),
    ),
}
