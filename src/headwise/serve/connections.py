"""Closes connections without a request: uvicorn has no timeout for headers.

Not here: timeouts of bodies (`access`) and of responses (`routes`).
"""

from typing import Any


def protocol_with_timeout(seconds: float) -> type[Any]:
    """uvicorn's protocol, which closes connections without a complete request for one to two times `seconds`."""
    from uvicorn.protocols.http import auto

    protocol: Any = auto.AutoHTTPProtocol  # uses httptools if installed

    class TimelyProtocol(protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.timer = self.loop.call_later(seconds, self.check_idle, self.cycle)

        def connection_lost(self, error: Exception | None) -> None:
            self.timer.cancel()  # releases the connection's memory
            super().connection_lost(error)

        def check_idle(self, before: Any) -> None:
            """Close the connection if the request is the same as at the last check, and complete."""
            if self.transport.is_closing():
                return
            if self.cycle is before and (before is None or before.response_complete):
                return self.transport.close()
            self.timer = self.loop.call_later(seconds, self.check_idle, self.cycle)

    return TimelyProtocol
