"""What a headless run shows: a progress bar on a terminal, else a line now and then."""

import sys

import gevent
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from pd_users.live import LiveView, live_view
from pd_users.run import Run

BAR_S = 0.5
LINE_S = 10.0


class Progress:
    """Shows one run until ``close``; writes to stderr, so that --json keeps stdout for itself."""

    def __init__(self, run: Run, headless: bool, quiet: bool = False) -> None:
        self._run = run
        self._bar: RichProgress | None = None
        self._greenlet: gevent.Greenlet | None = None
        if not headless or quiet:
            return
        if sys.stderr.isatty():
            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[figures]}"),
                console=Console(stderr=True),
                transient=True,
                auto_refresh=False,  # its thread would wake the event loop behind our back
            )
            self._bar.start()
        self._greenlet = gevent.spawn(self._show)

    def _show(self) -> None:
        task = None
        while True:
            view = live_view(self._run)
            if self._bar is not None:
                if task is None:
                    task = self._bar.add_task("sending", total=view.window_s, figures="")
                draining = view.elapsed_s >= view.window_s or self._run.is_finishing
                label = "draining" if draining else "sending"
                self._bar.update(
                    task, completed=view.elapsed_s, figures=figures(view), description=label
                )
                self._bar.refresh()
            else:
                text = f"{view.elapsed_s:.0f} of {view.window_s:.0f} s: {figures(view)}"
                print(text, file=sys.stderr, flush=True)  # noqa: T201
            gevent.sleep(BAR_S if self._bar is not None else LINE_S)

    def close(self) -> None:
        """The run is over."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)
        if self._bar is not None:
            self._bar.stop()


def figures(view: LiveView) -> str:
    """The view in one line."""
    return (
        f"{view.ok} ok, {view.failed} failed, TTFT P99 {_ms(view.ttft_p99_ms)}, "
        f"TPOT P99 {_ms(view.tpot_p99_ms)}, lag P99 {_ms(view.lag_p99_ms)}"
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
