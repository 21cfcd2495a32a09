"""gzip and deflate, piece by piece: asked not to compress, some gateways do. Pure."""

import zlib
from collections.abc import Iterator

_PIECE = 65536
_WBITS = {"gzip": 47, "x-gzip": 47, "deflate": 47}  # 47: a gzip or a zlib header, whichever comes


class Inflate:
    """Never raises: what cannot be decoded is said in ``broken``, and the rest is dropped."""

    def __init__(self, coding: str) -> None:
        self.broken: str | None = None
        self._wbits = _WBITS.get(coding, 0)
        if not self._wbits:
            self.broken = f"Content-Encoding {coding[:40]!r}, though only identity was asked for"
        self._zlib = zlib.decompressobj(47)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The decoded pieces of ``data``, each of bounded size."""
        while data and self.broken is None:
            if self._zlib.eof:  # a server may send one gzip member per flush
                self._zlib = zlib.decompressobj(self._wbits)
            try:
                piece = self._zlib.decompress(data, _PIECE)
            except zlib.error as error:
                self.broken = f"broken compression: {error}"
                return
            data = self._zlib.unconsumed_tail or self._zlib.unused_data
            if piece:
                yield piece
