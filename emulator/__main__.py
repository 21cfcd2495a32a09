"""``python -m emulator``: a PD cluster on a port."""

import asyncio
import gc
import os
import signal
import sys
from contextlib import suppress

from emulator.connection import Connection
from emulator.options import Options, read_options
from emulator.precise_loop import precise_loop
from emulator.server import Server


def _end_with_parent(ended: asyncio.Event) -> None:
    """Whoever started us has gone when the pipe closes; or, if a fork of it holds the pipe, when
    we have another parent."""
    loop, parent = asyncio.get_running_loop(), os.getppid()

    def read() -> None:
        if not os.read(0, 4096):
            ended.set()

    def look() -> None:
        if os.getppid() != parent:
            ended.set()
        loop.call_later(0.5, look)

    with suppress(OSError):  # a file or /dev/null cannot be waited for
        loop.add_reader(0, read)
    look()


async def _serve(options: Options) -> None:
    loop = asyncio.get_running_loop()
    server = Server(options.engine, options.deployment, options.settings)
    listening = await loop.create_server(
        lambda: Connection(server.handle), options.host, options.port, backlog=4096
    )
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    if options.exit_with_parent:
        _end_with_parent(ended)
    gc.freeze()  # what is here stays; a full collection in mid-run would hold back every token
    gc.set_threshold(50_000, 20, 1000)
    host, port = listening.sockets[0].getsockname()[:2]
    print(f"emulator listening on http://{host}:{port}", flush=True)
    await ended.wait()
    listening.close()


def main() -> int:
    """Run until a signal comes; 1 for a wrong option."""
    try:
        options = read_options(sys.argv[1:])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    try:
        with asyncio.Runner(loop_factory=precise_loop) as runner:
            runner.run(_serve(options))
    except OSError as error:
        code = error.errno or 0
        why = os.strerror(code) if code > 0 else error.strerror or str(error)  # < 0: a name
        print(
            f"error: cannot listen on {options.host}:{options.port}: {why.lower()}.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
