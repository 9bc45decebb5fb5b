"""When two outputs are equal: by hand, and against exact fractions on random tokens."""

from __future__ import annotations

import random
import re
import tracemalloc
from fractions import Fraction

import pytest

from compare import letters_in_any_case, same_output

LONG = "7" * 1_000_000

EQUAL = [
    ("", ""),
    ("", " \n\t\r\v\f"),
    ("1 2\n3\n", "1\n2 3"),
    ("a  b\r\n", "a b"),
    ("YES", "YES\n"),
    ("5", "5.0"),
    ("5", "5."),
    ("0.5", ".5"),
    ("5", "+5"),
    ("5", "05"),
    ("0", "-0"),
    ("0", "-0.0"),
    ("0", "00000000"),
    ("-12", "-0012"),
    ("0.3333333333", "0.333333"),
    ("1000000.5", "1000001"),
    ("123456789.0", "123456789.00001"),
    ("1e3", "1000"),
    ("1E+3", "1000"),
    ("1.5e-3", "0.0015"),
    ("1e999999999", "10e999999998"),
    ("1e-999999999", "0"),
    ("0e999999999", "0"),
    ("0.1", "0.100001"),
    ("0.1", "0.099999"),
    ("1e400", "1.0000001e400"),
    (f"{LONG}", f"000{LONG}"),
    (f"{LONG}", f"{LONG}.0"),
    (f"0.{LONG}", "0.7777777"),
    # a decimal for an integer: within 1e-6, however large
    ("3", "3.0000001"),
    ("3", "2.999999"),
    ("0", "-0.000001"),
    ("0", "0e999999999"),
    ("0", "1e-9999999999999999999999"),
    ("-7", "-7.0000009"),
    ("1000000007", "1000000007.0000009"),
    ("1000000000000000000", "1e18"),
    ("500000000500000000", "5.000000005e+17"),
    (f"{LONG}", f"{LONG}.000001"),
    (f"1{'0' * 1000}", "1e1000"),
    # digits with a leading zero
    ("00101", "00101"),
    ("007.5", "7.5"),
    ("7", "007"),
    ("nan", "nan"),
    ("0x1f", "0x1f"),
    ("\u0663", "\u0663"),
    ("na\u00efve \u2028", "na\u00efve \u2028\n"),
]

DIFFERENT = [
    ("1", ""),
    ("", "1"),
    ("1 2", "1"),
    ("1", "1 2"),
    ("1 2", "12"),
    ("YES", "NO"),
    ("YES", "yes"),
    ("Yes", "1"),
    ("1\n2\n3", "1\n2\n4"),
    ("1000000000000000000", "1000000000000000001"),
    ("1000000", "1000001"),
    ("9007199254740992", "9007199254740993"),
    (LONG, LONG[:-1] + "8"),
    (LONG, LONG + "7"),
    (LONG, "-" + LONG),
    (LONG, LONG + "x"),
    ("1", "-1"),
    ("1000000007", "1000000107.0"),
    ("1000000007", "1000000007.0000011"),
    ("1000000007", "1e9"),
    ("1000000000000000000", "1000000000000999999.0"),
    ("500000000500000000", "5.00000000500000001e+17"),
    ("9007199254740993", "9007199254740992.0"),
    ("-1000000007", "-1000000107.0"),
    ("123456789012", "123456789012.5"),
    ("3", "3.0000011"),
    ("0", "-0.0000011"),
    ("1", "0e999999999"),
    (f"{LONG}", f"{LONG}.0000011"),
    (f"1{'0' * 1000}", "1.1e1000"),
    ("1", "1e999999999"),
    ("00101", "101"),
    ("00101", "0101"),
    ("00101", "101.0"),
    ("00101", "+00101"),
    ("000", "0"),
    ("1 01 3", "1 1 3"),
    ("0.1", "0.1000011"),
    ("1.0", "1.0000011"),
    ("1000000.5", "1000002"),
    ("0", "0.0000011"),
    ("1e999999999", "1e999999998"),
    ("1e9999999999999999999999", "2e9999999999999999999999"),
    ("1e" + LONG, "2e" + LONG),
    ("1", "1e" + LONG),
    ("1e400", "1.1e400"),
    ("nan", "NaN"),
    ("nan", "0"),
    ("inf", "infinity"),
    ("inf", "1e999"),
    ("1000", "1_000"),
    ("31", "0x1f"),
    ("31.0", "0x1f"),
    ("3", "\u0663"),
    ("3", "\uff13"),
    ("2", "\u00b2"),
    ("5", "+-5"),
    ("5", "5f"),
    ("5", "5e"),
    ("0", "."),
    ("0", "e5"),
    ("1.2", "1.2.0"),
    ("1.5", "1,5"),
    ("1", "1j"),
    ("1", "1\0"),
    ("1", "1\u00a0"),
    ("1", "\ufeff1"),
]


@pytest.mark.parametrize(("expected", "got"), EQUAL, ids=range(len(EQUAL)))
def test_equal(expected: str, got: str) -> None:
    assert same_output(expected.encode(), got.encode())


@pytest.mark.parametrize(("expected", "got"), DIFFERENT, ids=range(len(DIFFERENT)))
def test_different(expected: str, got: str) -> None:
    assert not same_output(expected.encode(), got.encode())


def test_letters_in_any_case() -> None:
    for expected, got in [("YES", "yes"), ("Yes\n1 2", "yES 1 2.0"), ("a 1E3", "A 1000")]:
        assert same_output(expected.encode(), got.encode(), any_case=True)
        assert not same_output(expected.encode(), got.encode())
    for expected, got in [("YES", "NO"), ("YES", "Y"), ("ab", "a b"), ("\u00e9", "\u00c9")]:
        assert not same_output(expected.encode(), got.encode(), any_case=True)


@pytest.mark.parametrize(
    "statement",
    [
        "You can print each letter in any case (upper or lower).",
        "You can print each\ncharacter in any case (either upper or lower).",
        "Print YES or NO. You may print every letter in any case you want.",
        'You can output "YES" and "NO" in any case (for example, "yes" is a positive response).',
        'Print the verdict. Strings such as "yEs" are recognized.',
        "You can print the answer in any case.",
        "Output the answer (in any case).",
        "You may output the word in any letter case.",
        "You can print letters in any register.",
        "Print \u00abYES\u00bb in any register.",
        "You can print each letter in arbitrary case (upper or lower)",
        "Print YES (case insensitive) if it is possible",
        "The checker is case-insensitive so answers like pROfiT and PROFIT are the same.",
        "The answer is not case-sensitive.",
        "You may print each character of the string in uppercase or lowercase.",
        "Each letter of the output may be in upper or lower case.",
        "Letters can be printed in upper- or lowercase",
        "The checker compares without case: you can print letters in both uppercase and lowercase.",
        "The letters may be printed in any combination of uppercase and lowercase.",
        "Letter case of the answer does not matter.",
        "Print YES or NO regardless of case.",
        "Output\n\nYES or NO. The case of letters is not important.\n\nExample\n\nInput\n\n3",
        "## Output\nThe register doesn't matter.",
    ],
)
def test_a_statement_that_says_that_case_does_not_matter(statement: str) -> None:
    assert letters_in_any_case(statement)
    assert letters_in_any_case(f"You are given n.\n\nInput\n\nOne number.\n\n{statement}\n")


@pytest.mark.parametrize(
    "statement",
    [
        "Print YES or NO.",
        "For any test case print the answer.",
        "In any case, print -1.",
        "If it is impossible in any case, print NO.",
        "Print NO if there is no way in either case.",
        "Print -1 if there is no way in any case.",
        "Two names are equal case-insensitively. Print the number of names.",
        "Print the words sorted case-insensitively.",
        "The string consists of upper or lower case Latin letters. Print it.",
        "Print a string that may contain uppercase or lowercase letters.",
        "Print the word in lower or upper case, as the majority says.",
        "All letters should be upper-case.",
        "A value can be loaded into any register. Print the largest value.",
        "The letters' case does not matter, that is an uppercase letter is equivalent to the "
        "lowercase letter.\n\nInput\n\nTwo strings.\n\nOutput\n\nPrint -1, 0 or 1.",
    ],
)
def test_a_statement_that_says_nothing_of_it(statement: str) -> None:
    assert not letters_in_any_case(statement)


def test_bytes_that_are_not_utf_8() -> None:
    assert same_output(b"\xff\xfe 1", b"\xff\xfe\n1.0")
    assert not same_output(b"a", b"\xff")
    assert not same_output("\ufffd".encode(), b"\xff")
    assert not same_output(b"1", b"1\xff")


@pytest.mark.parametrize("unit", [b"1 ", b"1\n", b"1234567 ", b"0.3333333333 ", b"word\n"])
def test_a_long_output_is_compared_to_its_end(unit: bytes) -> None:
    expected = unit * (3_000_000 // len(unit))
    assert same_output(expected, expected.rstrip() + b"\n\n")
    assert same_output(expected, expected.replace(b"\n", b"\r\n"))
    assert not same_output(expected, expected + b"1")
    assert not same_output(expected, expected[: -len(unit)])
    assert not same_output(expected, expected[:-2] + b"x ")
    assert not same_output(expected, unit)
    assert not same_output(unit, expected)


def test_the_comparison_of_1_mib_takes_little_memory() -> None:
    expected = b"12 " * (2**20 // 3)
    got = b"12\n" * (2**20 // 3)
    tracemalloc.start()
    try:
        assert same_output(expected, got)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20  # split whole, both would be 30 MiB
    finally:
        tracemalloc.stop()


def test_one_token_of_16_mib() -> None:
    token = b"9" * (16 * 2**20)
    assert same_output(token, b"0" + token)
    assert not same_output(token, token[:-1] + b"8")
    assert not same_output(token, token + b"x")
    assert not same_output(b"1", b" " * len(token))


# The rules once more, by another way: integers as int, the rest as exact fractions.
PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\Z")


def oracle(expected: str, got: str) -> bool:
    want, have = expected.split(" "), got.split(" ")
    return len(want) == len(have) and all(map(token_oracle, want, have))


def token_oracle(want: str, have: str) -> bool:
    if want == have:
        return True
    if not (PLAIN.match(want) and PLAIN.match(have)):
        return False
    gap = abs(Fraction(want) - Fraction(have))
    if not set(want) & set(".eE"):
        if re.match(r"[+-]?0[0-9]", want):
            return False
        return gap <= Fraction(1, 10**6) and (gap == 0 or bool(set(have) & set(".eE")))
    return gap <= Fraction(1, 10**6) * max(Fraction(1), abs(Fraction(want)))


def random_token(rng: random.Random) -> str:
    digits = "".join(rng.choices("0123456789", k=rng.choice([0, 1, 1, 2, 6, 7, 12, 20, 30])))
    fraction = "".join(rng.choices("0059", k=rng.choice([0, 1, 5, 6, 7, 8, 12])))
    return (
        rng.choice(["", "", "", "", "-", "+"])
        + digits
        + rng.choice(["", "", ".", "." + fraction])
        + rng.choice(["", "", "", f"e{rng.randint(-12, 12)}", f"E+{rng.randint(0, 30)}", "e", "x"])
    ) or "0"


def neighbour(rng: random.Random, token: str) -> str:
    """A token that is the same number, nearly the same, or a character away."""
    kind = rng.randrange(5)
    if kind == 0 or not PLAIN.match(token):
        at = rng.randrange(max(0, len(token) - 3), len(token) + 1)  # a short exponent at most
        return token[:at] + rng.choice(["", "0", "1", ".", "e", "-"]) + token[at + 1 :] or "1"
    value = Fraction(token)
    if kind == 1:
        value += rng.choice([-1, 1]) * Fraction(rng.choice([9, 10, 11]), 10**7)
    elif kind == 2:
        value *= 1 + rng.choice([-1, 1]) * Fraction(rng.choice([9, 10, 11]), 10**7)
    elif kind == 3:
        value += rng.choice([-1, 1])
    if value.denominator == 1 and rng.random() < 0.7:
        return str(value.numerator)
    scaled = round(value * 10**40)
    digits = str(abs(scaled)).rjust(41, "0")
    return f"{'-' if scaled < 0 else ''}{digits[:-40]}.{digits[-40:]}".rstrip("0")


def test_random_tokens_against_exact_fractions() -> None:
    rng = random.Random(0)
    answers = []
    for _ in range(20_000):
        want = random_token(rng)
        have = neighbour(rng, want) if rng.random() < 0.7 else random_token(rng)
        answer = oracle(want, have)
        assert same_output(want.encode(), have.encode()) == answer, (want, have)
        answers.append(answer and want != have)
    assert 4_000 < sum(answers) < 16_000  # both answers are tried


def test_random_outputs_against_exact_fractions() -> None:
    rng = random.Random(1)
    answers = []
    for _ in range(4_000):
        want = [random_token(rng) for _ in range(rng.randint(1, 6))]
        have = [t if rng.random() < 0.7 else neighbour(rng, t) for t in want]
        if rng.random() < 0.1:
            have.append("1")
        answers.append(oracle(" ".join(want), " ".join(have)))
        spread = "".join(t + rng.choice([" ", "\n", "  \r\n", "\t"]) for t in have)
        assert same_output(" ".join(want).encode(), spread.encode()) == answers[-1]
    assert 400 < sum(answers) < 3_600
