"""Connections on which no request arrives are closed: uvicorn waits for headers for ever.

Not here: bodies that do not arrive (`gate`), and answers (`routes`).
"""

from typing import Any


def protocol_with_timeout(seconds: float) -> type[Any]:
    """uvicorn's protocol, which hangs up when no request arrives whole for `seconds`, and at most twice as long."""
    from uvicorn.protocols.http import auto

    protocol: Any = auto.AutoHTTPProtocol  # by httptools where that is installed

    class TimelyProtocol(protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.looking = self.loop.call_later(seconds, self.look, self.cycle)

        def connection_lost(self, error: Exception | None) -> None:
            self.looking.cancel()  # or all that the connection held would be kept until then
            super().connection_lost(error)

        def look(self, before: Any) -> None:
            """`before` is the request that was answered, or came, when this was last looked at."""
            if self.transport.is_closing():
                return
            if self.cycle is before and (before is None or before.response_complete):
                return self.transport.close()
            self.looking = self.loop.call_later(seconds, self.look, self.cycle)

    return TimelyProtocol
