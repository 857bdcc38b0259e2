"""The algorithm, from arrays to arrays; `pipeline` follows the paper."""
