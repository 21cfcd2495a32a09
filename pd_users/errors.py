"""The failure that is the target's: it cannot be reached, or answers what no load test can use."""


class TargetError(Exception):
    """Trouble with the target; its text is one sentence with the status and the cure."""
