"""OpenAI Responses and Conversations: items in, typed and numbered events out, in two dialects."""
