"""The algorithm: arrays in, arrays out; `pipeline` reads like the paper."""
