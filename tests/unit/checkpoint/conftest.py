from tiny_checkpoints import configs, write

__all__ = ["configs", "write"]
