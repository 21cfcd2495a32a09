"""The failure that is in a plan, a run file or a number the user gave."""


class PlanError(ValueError):
    """A wrong plan or run; its text is one sentence: file, key, what was found, what is allowed."""
