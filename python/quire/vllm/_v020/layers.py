"""Kinds of layers of vLLM 0.20."""

KINDS = {"FullAttentionSpec": 1, "TQFullAttentionSpec": 2, "MLAAttentionSpec": 3,
         "SinkFullAttentionSpec": 4, "SlidingWindowSpec": 5, "SlidingWindowMLASpec": 6,
         "ChunkedLocalAttentionSpec": 7, "MambaSpec": 8, "CrossAttentionSpec": 9}
