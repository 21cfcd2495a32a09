"""What single values inside the events of a stream say. Pure."""

from typing import Any

MAX_TOKENS = 2**31 - 1  # what a record holds; a count beyond is as good as none


def count(value: Any) -> int:
    """A token count that a server told; -1 where it is none."""
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else -1


def cached_tokens(usage: dict[str, Any]) -> int:
    """Prompt tokens that came from the prefix cache; -1 where the server does not say."""
    details = usage.get("prompt_tokens_details")
    if type(details) is dict and "cached_tokens" in details:
        return count(details["cached_tokens"])
    return count(usage.get("prompt_cache_hit_tokens"))  # DeepSeek


def characters_of(choice: dict[str, Any]) -> int:
    """Characters of answer in one choice; a delta that holds something counts at least 1."""
    delta = choice.get("delta")
    if type(delta) is not dict:
        return _length(choice.get("text"))
    content = delta.get("content")
    if type(content) is str and content:
        return len(content)
    return (
        _length(content)
        or _length(delta.get("reasoning_content"))
        or _length(delta.get("reasoning"))
        or _calls(delta.get("tool_calls"))
    )


def _length(value: Any) -> int:
    """Of a text, or of a list of parts (Mistral)."""
    if type(value) is str:
        return len(value)
    if type(value) is list and value:
        texts = (part.get("text") for part in value if type(part) is dict)
        return max(1, sum(len(text) for text in texts if type(text) is str))
    return 0


def _calls(calls: Any) -> int:
    """Of the names and arguments of tool calls."""
    if type(calls) is not list or not calls:
        return 0
    characters = 0
    for call in calls:
        function = call.get("function") if type(call) is dict else None
        if type(function) is dict:
            characters += _length(function.get("name")) + _length(function.get("arguments"))
    return max(1, characters)
