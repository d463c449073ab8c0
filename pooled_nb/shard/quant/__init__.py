"""Weight-only quantization: linear layers kept in 8 or 4 bits a number, activations as they are.

`forms` says what a room may ask for and what it takes in memory (no torch), `numbers` rounds weights,
`linear` computes with them, on a GPU by `products`; `loading` puts them in place of the model's own while its
weights are read.
"""
