"""Types of numbers in GGUF files, and the word that a tensor's place has for how it is read."""

from __future__ import annotations

from typing import NamedTuple

MARK = "GGUF "


class Type(NamedTuple):
    """Numbers come in groups of ``group``, which take ``size`` bytes."""

    name: str
    group: int
    size: int


TYPES = {
    0: Type("F32", 1, 4), 1: Type("F16", 1, 2), 30: Type("BF16", 1, 2),
    2: Type("Q4_0", 32, 18), 3: Type("Q4_1", 32, 20), 6: Type("Q5_0", 32, 22), 7: Type("Q5_1", 32, 24),
    8: Type("Q8_0", 32, 34),
    10: Type("Q2_K", 256, 84), 11: Type("Q3_K", 256, 110), 12: Type("Q4_K", 256, 144),
    13: Type("Q5_K", 256, 176), 14: Type("Q6_K", 256, 210),
    16: Type("IQ2_XXS", 256, 66), 17: Type("IQ2_XS", 256, 74), 18: Type("IQ3_XXS", 256, 98),
    19: Type("IQ1_S", 256, 50), 20: Type("IQ4_NL", 32, 18), 21: Type("IQ3_S", 256, 110),
    22: Type("IQ2_S", 256, 82), 23: Type("IQ4_XS", 256, 136), 29: Type("IQ1_M", 256, 56),
    34: Type("TQ1_0", 256, 54), 35: Type("TQ2_0", 256, 66),
}  # fmt: skip
"""By GGUF's number: those that the gguf library widens. Others are refused by name."""
NUMBERS = {type.name: number for number, type in TYPES.items()}


class Form(NamedTuple):
    """How a tensor's numbers are read.

    Attributes
    ----------
    type
        Name of its type.
    heads
        Its rows are those of so many heads, whose rotary pairs lie side by side; 0: they lie as they should.
    less
        What is taken from each number: Gemma's norms are kept with 1 added.
    """

    type: str
    heads: int = 0
    less: int = 0


def word_of(form: Form) -> str:
    """``GGUF Q4_K 32 0``: what stands for a dtype where a tensor's place is told (`layout.Tensor`)."""
    return f"{MARK}{form.type} {form.heads} {form.less}"


def form_of(word: str) -> Form | None:
    """Read such a word; None for a dtype of another format."""
    if not word.startswith(MARK):
        return None
    type, heads, less = word.removeprefix(MARK).split(" ")
    return Form(type, int(heads), int(less))
