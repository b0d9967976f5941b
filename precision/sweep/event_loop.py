"""The event loop of this process, in a thread of its own, however long the thread takes to start."""

from __future__ import annotations

import asyncio
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tornado.ioloop import IOLoop


@cache
def event_loop() -> IOLoop:
    """The one loop, which runs until the process ends."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="event loop", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(_current(), loop).result()


async def _current() -> IOLoop:
    from tornado.ioloop import IOLoop

    return IOLoop.current()
