"""Chat Completions: requests, streams, bodies, history. Source: OpenAI API reference, "Chat"; backend contract."""
