"""The doctor's first questions: is there a key, does it look like one, does the target take it. Pure."""

from pd_users.channel import Channel
from pd_users.checks import FAIL, KEY, OK, WARN, Check
from pd_users.secrets import Key
from pd_users.whole import Response


def key_check(key: Key, channel: Channel) -> Check:
    """The key that was found, without a character of it."""
    if not key.value:
        if channel.needs_key:
            advice = f"export {channel.api_key_env}=..., or name a variable with --api-key-env"
            return Check(KEY, "key", f"{key.source} is not set", FAIL, advice, "key-missing")
        return Check(KEY, "key", f"none ({key.source} is not set)")
    found = f"from {key.source}, {len(key.value)} characters"
    if key.tidied:
        advice = f"take it out of {key.source}, other programs will trip over it"
        return Check(
            KEY, "key", f"{found}; {' and '.join(key.tidied)} around it left out", WARN, advice
        )
    if channel.engine in ("taotoken", "openai") and not key.value.startswith("sk-"):
        return Check(
            KEY, "key", f"{found}; it does not begin with sk-", WARN, "is it this channel's key?"
        )
    return Check(KEY, "key", found)


def rights_check(key: Key, answer: Response) -> Check:
    """What the first completion said to the key; a refusal is told elsewhere, by its own name."""
    with_it = "with this key" if key.value else "without a key"
    return Check(KEY, "rights", f"a completion {with_it} is answered: HTTP {answer.status}", OK)
