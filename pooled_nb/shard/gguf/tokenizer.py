"""The tokenizer of a GGUF file, as ``tokenizer.json``: built of its tokens, and merges or scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pooled_nb.shard.gguf.reader import Header, damaged, unsupported

_UNKNOWN, _CONTROL, _OWN = 2, 3, 4
"""Token types in GGUF: of an unknown text, of control, and defined by the model's makers."""
_SPACE = "\u2581"
_NO_TOKEN = 0xFFFFFFFF
_LONGEST = 512
"""Characters of a token, or of a merge: real ones have up to 256, and each is cut everywhere."""

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "dbrx", "smaug-bpe"), _LLAMA3)
_SPLITS |= dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2) | {"tekken": _TEKKEN}
"""Before its merges, a vocabulary's text is cut by one of these, under the name that llama.cpp gave it."""
_WHOLE = ("llama3", "llama-v3", "llama-bpe", "falcon3", "tekken")
"""A word that is a token is taken whole, whatever the merges say."""


def build(header: Header, name: str) -> tuple[str, dict[str, Any]]:
    """``tokenizer.json`` and ``tokenizer_config.json``.

    Raises
    ------
    ModelNotFound
        It contradicts itself.
    ModelNotSupported
        It is one that is not read; says why.
    """
    said = _Said(header, name)
    kind = said.get("model", str, "")
    if kind == "gpt2":
        tokenizer = _byte_level(said)
    elif kind == "llama":
        tokenizer = _sentencepiece(said)
    else:
        raise unsupported(name, f"has a tokenizer of the kind {kind[:40]!r}, which is not read")
    _add(said, tokenizer)
    return tokenizer.to_str(), _config(said)


class _Said:
    """What a header says of its tokenizer, typed."""

    def __init__(self, header: Header, name: str) -> None:
        self._facts, self.name = header.facts, name
        self.arch = str(header.facts["general.architecture"])
        self.pre = self.get("pre", str, "")
        self.tokens = self.texts("tokens")
        if not self.tokens:
            raise damaged(name, "it holds no tokens")
        self.types = self.numbers("token_type", [1] * len(self.tokens))

    def get(self, key: str, kind: type[Any], default: Any) -> Any:
        value = self._facts.get(f"tokenizer.ggml.{key}", default)
        if not isinstance(value, kind):
            raise damaged(self.name, f"its tokenizer.ggml.{key} is {value!r:.40}")
        return value

    def texts(self, key: str) -> list[str]:
        found = self.get(key, list, [])
        if not all(isinstance(text, str) for text in found):
            raise damaged(self.name, f"its tokenizer.ggml.{key} are no texts")
        if any(len(text) > _LONGEST for text in found):
            raise damaged(self.name, f"one of its tokenizer.ggml.{key} has over {_LONGEST} characters")
        return list(found)

    def numbers(self, key: str, default: Sequence[float]) -> list[float]:
        found = self.get(key, list, list(default))
        if len(found) != len(self.tokens) or not all(isinstance(number, int | float) for number in found):
            raise damaged(self.name, f"its tokenizer.ggml.{key} do not belong to its tokens")
        return list(found)

    def token(self, key: str) -> str | None:
        number = self.get(f"{key}_token_id", int, _NO_TOKEN)
        if number != _NO_TOKEN and not 0 <= number < len(self.tokens):
            raise damaged(self.name, f"its {key} token is {number} of {len(self.tokens)}")
        return None if number == _NO_TOKEN else self.tokens[number]

    @property
    def template(self) -> str | None:
        found = self._facts.get("tokenizer.chat_template")
        return found if isinstance(found, str) else None

    @property
    def adds_bos(self) -> bool:
        """As llama.cpp has it, where the file does not say."""
        usual = self.get("model", str, "") == "llama" or self.pre in _WHOLE[:3]
        return bool(self.get("add_bos_token", bool, usual))


def _byte_level(said: _Said) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers

    merges = [tuple(merge.split(" ")) for merge in said.texts("merges")]
    if not all(len(merge) == 2 for merge in merges):
        raise damaged(said.name, "a merge of its tokenizer is none")
    tokenizer = Tokenizer(_bpe(said, said.tokens, merges, ignore_merges=said.pre in _WHOLE))
    before: list[Any]
    if said.pre in _SPLITS:
        before = [
            pre_tokenizers.Split(Regex(_SPLITS[said.pre]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    elif said.pre in ("smollm", "gpt-2"):
        digits = [pre_tokenizers.Digits(individual_digits=True)] if said.pre == "smollm" else []
        before = [*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        raise unsupported(said.name, f"cuts text as {said.pre[:40]!r} does, which is not known here")
    if _SPLITS.get(said.pre) == _QWEN2:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(before)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(said: _Said) -> Any:
    from tokenizers import Tokenizer, decoders, normalizers

    gemma = said.arch.startswith("gemma")
    tokens = said.tokens
    if gemma:
        # Runs of spaces stand there as such, where all other tokens write them as SentencePiece does.
        tokens = [text.replace(" ", _SPACE) if not text.strip(" ") else text for text in tokens]
    merges: list[Any] = [tuple(merge.split(" ")) for merge in said.texts("merges")]
    if not merges:
        # Gemma's scores do not follow its merges; the order of its tokens does.
        order = [-float(i) for i in range(len(tokens))] if gemma else said.numbers("scores", [])
        merges = _merges(tokens, order)
    unknown = said.token("unknown") or next(
        (text for text, kind in zip(tokens, said.types, strict=True) if kind == _UNKNOWN), None
    )
    tokenizer = Tokenizer(_bpe(said, tokens, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefix = said.get("add_space_prefix", bool, not gemma)
    first = [normalizers.Prepend(_SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", _SPACE)])
    last = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *last]
    )
    return tokenizer


def _bpe(said: _Said, tokens: list[str], merges: list[Any], **more: Any) -> Any:
    from tokenizers import models

    vocabulary = {text: i for i, text in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise damaged(said.name, "a token of its tokenizer stands there twice")
    try:
        return models.BPE(vocabulary, merges, **more)
    except Exception as error:  # a merge of tokens that are none
        raise damaged(said.name, f"its tokenizer contradicts itself ({error!s:.80})") from error


def _merges(tokens: list[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Merges that a vocabulary implies: every way to put a token together of two, best token first."""
    ids = {text: i for i, text in enumerate(tokens)}
    found: list[tuple[float, int, int, str, str]] = []
    for text, score in zip(tokens, scores, strict=True):
        ways = [(text[:i], text[i:]) for i in range(1, len(text))]
        ways = [(a, b) for a, b in ways if a in ids and b in ids]
        ways.sort(key=lambda way: (ids[way[0]], ids[way[1]]))
        found += [(score, len(a), len(b), a, b) for a, b in ways]
    found.sort(key=lambda merge: merge[:3], reverse=True)
    return [(a, b) for *_, a, b in found]


def _add(said: _Said, tokenizer: Any) -> None:
    """Let control tokens and the makers' own be found whole, and begin texts as the model expects."""
    from tokenizers import AddedToken, processors

    known = tokenizer.get_vocab(with_added_tokens=False)
    texts: dict[bool, list[Any]] = {True: [], False: []}
    for text, kind in zip(said.tokens, said.types, strict=True):
        if kind in (_UNKNOWN, _CONTROL, _OWN) and text in known and text:
            special = kind != _OWN
            texts[special].append(AddedToken(text, special=special, normalized=False))
    tokenizer.add_special_tokens(texts[True])
    tokenizer.add_tokens(texts[False])
    bos = said.token("bos")
    if said.adds_bos and bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], pair=[bos, "$A", bos, "$B:1"], special_tokens=[(bos, known[bos])]
        )


def _config(said: _Said) -> dict[str, Any]:
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    special = {f"{key}_token": said.token(name) for key, name in names.items()}
    control = [text for text, kind in zip(said.tokens, said.types, strict=True) if kind == _CONTROL and text]
    return {key: text for key, text in special.items() if text is not None} | {
        "additional_special_tokens": [text for text in control if text not in special.values()],
        "chat_template": said.template,
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
