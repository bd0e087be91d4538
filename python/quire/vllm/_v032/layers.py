"""Kinds of layers of vLLM 0.32, as far as the library makes its decisions. Models with sinks cannot
start in vLLM 0.32 itself."""

KINDS = {"FullAttentionSpec": 1, "MLAAttentionSpec": 3, "SlidingWindowSpec": 5,
         "SlidingWindowMLASpec": 6, "ChunkedLocalAttentionSpec": 7, "CrossAttentionSpec": 9}
