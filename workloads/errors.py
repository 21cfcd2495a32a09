"""The one failure that is the user's to mend: a wrong file, key or value."""


class ConfigError(ValueError):
    """A wrong setting; its text is one sentence: which file, which key, what was found, what is allowed."""
