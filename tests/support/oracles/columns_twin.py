"""The column decoder in plain Python: docs/formats/columns.md line by line, and the oracle of the kernels.

Written from the document, sharing no code with the kernels. Raises Corrupt where the document says corrupt.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

LEVEL, DELTA, SLOPE, XOR, RISE, LEVEL_AROUND, RISE_AROUND = range(7)
BLOCKS, ONE_BLOCK, ENTROPY = range(3)
SHORT_HEADS = [way << 3 | ONE_BLOCK << 1 | step for way in (LEVEL, DELTA, SLOPE, RISE) for step in (0, 1)]
SHORT_HEADS += [way << 3 | ENTROPY << 1 | step for way in (DELTA, SLOPE, LEVEL_AROUND, RISE_AROUND) for step in (0, 1)]
SHORT_SCALES = (0, 2, 9)


class Corrupt(Exception):
    """The bytes follow no form of the document."""


def _require(held: bool) -> None:
    if not held:
        raise Corrupt


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _unzigzag(value: int) -> int:
    return _signed(value >> 1 ^ -(value & 1))


def ordered(bits: int) -> int:
    return bits ^ 0x7FFFFFFFFFFFFFFF if bits < 0 else bits


def _float_of(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


def _bits_of(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


@dataclass
class _Reader:
    data: bytes
    pos: int = 0

    def take(self, count: int) -> bytes:
        _require(len(self.data) - self.pos >= count)
        self.pos += count
        return self.data[self.pos - count : self.pos]

    def byte(self) -> int:
        return self.take(1)[0]

    def bits64(self) -> int:
        return int(struct.unpack("<q", self.take(8))[0])

    def varint(self) -> int:
        value = 0
        for group in range(10):
            byte = self.byte()
            value |= (byte & 127) << 7 * group
            if byte < 128:
                _require(value < 2**64)
                return value
        raise Corrupt

    def zigzag(self) -> int:
        return _unzigzag(self.varint())

    def packed(self, count: int, width: int) -> list[int]:
        whole = int.from_bytes(self.take((count * width + 7) // 8), "little")
        return [whole >> width * index & (1 << width) - 1 for index in range(count)]

    def beyond(self) -> int:
        """A byte that may lie past the end."""
        self.pos += 1
        return self.data[self.pos - 1] if self.pos <= len(self.data) else 0


def decode_values(data: bytes, n: int) -> list[int]:
    """The bits of n floats, as int64. Raises Corrupt also when bytes are left."""
    reader = _Reader(data)
    bits = _values(reader, n) if n else []
    _require(reader.pos == len(data))
    return bits


def decode_times(data: bytes, n: int) -> list[int]:
    reader = _Reader(data)
    times = _times(reader, n) if n else []
    _require(reader.pos == len(data))
    return times


def decode_starts(data: bytes, ts: list[int]) -> list[int]:
    reader = _Reader(data)
    starts: list[int] = []
    same = 0
    while len(starts) < len(ts):
        samples, kind = divmod(reader.varint(), 4)
        _require(0 < samples <= len(ts) - len(starts))
        _require(kind != 3 or bool(starts))
        x = _unzigzag(reader.varint()) if kind in (1, 2) else 0
        if kind == 1:
            same = _signed(same + x)
        first = len(starts)
        for index in range(first, first + samples):
            starts.append((0, same, _signed(ts[index] - x), ts[index - 1])[kind])
    _require(reader.pos == len(data))
    return starts


def _times(reader: _Reader, n: int) -> list[int]:
    head = reader.byte()
    if head == 0:
        first = reader.zigzag()
        interval = reader.zigzag() if n > 1 else 0
        return [_signed(first + index * interval) for index in range(n)]
    _require(64 <= head < 128)
    return _frame(reader, head - 64, n)


def _values(reader: _Reader, n: int) -> list[int]:
    form = reader.byte()
    if form < 128:
        return [_bits_of(float(form))] * n
    if form == 128:
        scale = reader.byte()
        _require(scale < 49)
        return [_scaled(scale, reader.zigzag())] * n
    if form == 129:
        return [reader.bits64()] * n
    if form == 130:
        return [reader.bits64() for _ in range(n)]
    if form == 131:
        return _dictionary(reader, n)
    if form == 180:
        return _multiples(reader, n)
    return _packed(reader, form, n)


def _dictionary(reader: _Reader, n: int) -> list[int]:
    used = reader.varint()
    _require(1 <= used <= 128)
    entries = [reader.bits64() for _ in range(used)]
    ranks = _headed_frame(reader, n)
    _require(all(0 <= rank < used for rank in ranks))
    return [entries[rank] for rank in ranks]


def _multiples(reader: _Reader, n: int) -> list[int]:
    base = _float_of(reader.bits64())
    _require(0.0 < base < math.inf)
    multiples, left = _headed_frame(reader, n), _headed_frame(reader, n)
    return [
        ordered(_signed(ordered(_bits_of(float(multiple) * base)) + rest))
        for multiple, rest in zip(multiples, left, strict=True)
    ]


def _packed(reader: _Reader, form: int, n: int) -> list[int]:
    excepted = False
    if form < 192:
        _require(form < 180)
        scale, head = SHORT_SCALES[(form - 132) // 16], SHORT_HEADS[(form - 132) % 16]
    else:
        scale, head = reader.byte(), form - 192
        scale, excepted = scale & 127, scale >= 128
    _require(scale < 52)
    bits = [_scaled(scale, integer) for integer in _frame(reader, head, n)]
    if excepted:
        count, index = reader.varint(), -1
        _require(1 <= count <= n)
        for _ in range(count):
            index += reader.varint() + 1
            _require(index < n)
            bits[index] = reader.bits64()
    return bits


def _scaled(scale: int, integer: int) -> int:
    number = float(integer)
    if scale <= 22:
        number /= float(f"1e{scale}")
    elif scale <= 44:
        number *= float(f"1e-{scale - 22}")
    elif scale <= 48:
        number = number / float(f"1e{scale - 44}") / float(f"1e{scale - 44}")
    elif scale == 49:
        return ordered(integer)
    else:
        number /= 3600.0
        if scale == 51 and 1e-7 <= abs(number) < 1e15:
            power = float(f"1e{14 - _decade(abs(number))}")
            number = float(round(number * power)) / power
    return _bits_of(number)


def _decade(size: float) -> int:
    """d with 10^d <= size < 10^(d+1), the powers being doubles."""
    return max(d for d in range(-8, 15) if float(f"1e{d}") <= size)


def _headed_frame(reader: _Reader, n: int) -> list[int]:
    head = reader.byte()
    _require(head <= 64)
    return [0] * n if head == 64 else _frame(reader, head, n)


def _frame(reader: _Reader, head: int, n: int) -> list[int]:
    way, packing, code, step = head >> 3, head >> 1 & 3, 0, 1
    _require(n >= 2 and way <= RISE_AROUND and packing <= ENTROPY)
    if head & 1:
        code = reader.varint()
        step = 1 << (code >> 1) if code >> 1 < 63 else (code >> 1) - 63
    first = reader.zigzag() * (step if code & 1 else 1)
    middle = reader.zigzag() if way in (RISE, XOR, RISE_AROUND) else 0
    _require(way != XOR or 0 <= middle <= 63)
    count = n if way in (LEVEL, LEVEL_AROUND) else n - 1
    if packing == ENTROPY:
        _require(way not in (LEVEL, XOR, RISE))
        residuals = _entropy(reader, count)
    else:
        residuals = _blocks(reader, count, 32 if packing == BLOCKS else count)
    return [_signed(integer) for integer in _put_back(way, residuals, first, middle, step)]


def _put_back(way: int, residuals: list[int], first: int, middle: int, step: int) -> list[int]:
    if way == LEVEL:
        return [first + residual * step for residual in residuals]
    if way == LEVEL_AROUND:
        return [first + _unzigzag(residual) * step for residual in residuals]
    integers, change = [first], 0
    for residual in residuals:
        if way == SLOPE:
            change += _unzigzag(residual) * step
        elif way == RISE:
            change = (residual + middle) * step
        else:
            change = (_unzigzag(residual) + middle) * step
        integers.append(integers[-1] ^ residual << middle if way == XOR else integers[-1] + change)
    return integers


def _blocks(reader: _Reader, count: int, block: int) -> list[int]:
    residuals: list[int] = []
    while len(residuals) < count:
        head, size = reader.byte(), min(block, count - len(residuals))
        if head <= 64:
            residuals += reader.packed(size, head)
        elif head < 128:
            residuals += [0] * min((head - 64) * block, count - len(residuals))
        else:
            residuals += _patched(reader, size, head - 128)
    return residuals


def _patched(reader: _Reader, size: int, width: int) -> list[int]:
    patches, top_width = reader.varint(), reader.byte()
    _require(1 <= patches <= size and top_width >= 1 and width + top_width <= 64)
    residuals = reader.packed(size, width)
    places = reader.packed(patches, (size - 1).bit_length())
    for place, top in zip(places, reader.packed(patches, top_width), strict=True):
        _require(place < size)
        residuals[place] |= top << width
    return residuals


def _entropy(reader: _Reader, count: int) -> list[int]:
    edge = reader.byte()
    lowest, highest = (64, 64 + edge) if edge < 64 else (edge - 64, reader.byte())
    _require(lowest <= highest <= 127)
    classes = [lowest + symbol for symbol in _range_decoded(reader, count, highest - lowest + 1)]
    widths = [max(abs(each - 64) - 1, 0) for each in classes]
    lower = int.from_bytes(reader.take((sum(widths) + 7) // 8), "little")
    residuals = []
    for each, width in zip(classes, widths, strict=True):
        magnitude = lower & (1 << width) - 1 | (1 << width if each != 64 else 0)
        lower >>= width
        residuals.append(magnitude * 2 - 1 if each < 64 else magnitude * 2)
    return residuals


def _range_decoded(reader: _Reader, count: int, alphabet: int) -> list[int]:
    counts = [10] * alphabet
    width, code, symbols = 2**32 - 1, 0, []
    for _ in range(4):
        code = code << 8 | reader.beyond()
    for _ in range(count):
        share, symbol, below = width // sum(counts), 0, 0
        while symbol < alphabet - 1 and (below + counts[symbol]) * share <= code:
            below += counts[symbol]
            symbol += 1
        code -= share * below
        width = share * counts[symbol]
        _require(code < width)
        symbols.append(symbol)
        counts[symbol] += 32
        if sum(counts) > 3072:
            counts = [each - each // 2 for each in counts]
        while width < 2**24:
            code, width = code << 8 | reader.beyond(), width << 8
    reader.pos -= 3 if width >= 2**25 else 2
    _require(reader.pos <= len(reader.data))
    return symbols
