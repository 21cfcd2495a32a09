"""What a scenario shows while it lasts: a bar with the time left on a terminal, else lines."""

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

REFRESH_S = 0.5
LINE_S = 10.0


class Show:
    """On stderr, as the progress of a run is."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, soft_wrap=True)
        self._bar: Progress | None = None
        self._shown_s, self._label = float("-inf"), ""
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
                auto_refresh=False,  # its thread would wake the event loop behind our back
            )
            self._task = self._bar.add_task("")
            self._bar.start()

    def step(self, label: str, now_s: float, until_s: float) -> None:
        """Where it stands: what is done, now, and until when at the latest."""
        pause_s = REFRESH_S if self._bar is not None else LINE_S
        if label == self._label and now_s - self._shown_s < pause_s:
            return
        self._shown_s, self._label = now_s, label
        if self._bar is not None:
            self._bar.update(self._task, description=label, completed=now_s, total=until_s)
            self._bar.refresh()
        else:
            self.say(f"{label}: {now_s:.0f} s, at most {max(until_s - now_s, 0):.0f} s more")

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """It is over."""
        if self._bar is not None:
            self._bar.stop()
