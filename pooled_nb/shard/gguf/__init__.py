"""Models in GGUF files: one file that holds config, tokenizer and quantized weights (DESIGN section 6).

| what | in |
|---|---|
| a file's first part, read strictly | `reader`; types of numbers: `kinds` |
| architectures, and their tensors by transformers' names | `names`, `layout` |
| config and tokenizer, as Hugging Face's files | `config`, `rotary`, `tokenizer`; kept: `small` |
| numbers, widened and rounded once | `numbers` |
| a file on this device | `files`; which one of the hub's: `choosing` |
"""
