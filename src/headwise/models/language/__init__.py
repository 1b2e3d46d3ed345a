"""Language models: prompts, chats, and continuations."""
