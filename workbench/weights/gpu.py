"""16-bit weights on a CUDA card: counted code by code, squared along rows and columns, in one reading.

The card gives the same `Tally` as the loops on the CPU, and everything after that is the same. Each
multiprocessor counts in a table of its own, of nearly all codes that weights have; the few others are counted
in the card's main memory. A warp takes 256 columns down some rows and needs no other warp until the end.
"""

from __future__ import annotations

import threading
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.dequantize import LogicalWeight
from workbench.errors import WorkbenchError, shown
from workbench.weights import kernels
from workbench.weights.measure import KEPT, Tally, kind_of, rows_of, take_piece
from workbench.weights.reading import BLOCK, Reading

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, Any]

# Threads of a multiprocessor, and rows that each loads ahead: 16 bytes, eight codes, of each.
THREADS, ROWS = 640, 8
# Rows a warp adds up in float32 before it hands the sums on, and columns it takes.
_TALLEST, _SPAN = 1024, 256
# Counters of the table, and the first code that has one besides the two zeros; the sign is the lowest bit of
# codes here. All below 2^33 (F16: 32); where a multiprocessor has less than 160 KiB to share, 2^-87 to 2^8
# (F16: 2^-11 to 2).
_TABLES = (
    (40960, {"BF16": 2, "F16": 2}),
    (24576, {"BF16": 40 * 256, "F16": 4 * 2048}),
)

SOURCE = r"""
typedef unsigned long long Count;

// Codes whose last bits are all zero, as of bfloat16 made float16, would share few banks of memory: mix them.
__device__ __forceinline__ unsigned mixed(unsigned codes) { return codes ^ (codes >> 4 & 0x000e000eu); }

__device__ __forceinline__ void count_one(unsigned code, unsigned* table, Count* counts)
{
    const unsigned at = code < 2 ? code : code < FIRST ? TABLE : code - FIRST + 2;
    if (at < TABLE) atomicAdd(&table[mixed(at)], 1u);
    else atomicAdd(&counts[code >> 1 | (code & 1) << 15], 1ull);
}

// Counts eight codes. Adding a constant one is fast: equal codes in a warp are then counted together.
__device__ __forceinline__ void count(uint4 load, unsigned* table, Count* counts)
{
    unsigned words[4] = {load.x, load.y, load.z, load.w};
    #pragma unroll
    for (int k = 0; k < 4; ++k)
        words[k] = (words[k] << 1 & 0xfffefffeu) | (words[k] >> 15 & 0x00010001u);
    const unsigned most = __vmaxu2(__vmaxu2(words[0], words[1]), __vmaxu2(words[2], words[3]));
    if (FIRST == 2 && (most >> 16) < TABLE && (most & 0xffffu) < TABLE) {
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            const unsigned at = mixed(words[k]);
            atomicAdd(&table[at & 0xffffu], 1u);
            atomicAdd(&table[at >> 16], 1u);
        }
    } else {
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            count_one(words[k] & 0xffffu, table, counts);
            count_one(words[k] >> 16, table, counts);
        }
    }
}

// Adds eight squares to the sums of the columns, and returns their own sum.
__device__ __forceinline__ float square(uint4 load, float* sums)
{
    const unsigned words[4] = {load.x, load.y, load.z, load.w};
    float total = 0;
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
        float a, b;
        if (IS_HALF) {
            asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
                : "=f"(a), "=f"(b) : "r"(words[k]));
        } else {
            a = __uint_as_float(words[k] << 16);
            b = __uint_as_float(words[k] & 0xffff0000u);
        }
        sums[2 * k] += a * a;
        sums[2 * k + 1] += b * b;
        total += a * a;
        total += b * b;
    }
    return total;
}

// Adds ROWS numbers over the lanes of a warp: lane 0 gets the first sum, lane 32 / ROWS the next, and so on.
__device__ __forceinline__ float add_up(float* totals, int lane)
{
    #pragma unroll
    for (int step = 16, half = ROWS / 2; half; step >>= 1, half >>= 1) {
        const bool upper = lane & step;
        #pragma unroll
        for (int k = 0; k < half; ++k) {
            const float away = upper ? totals[k] : totals[k + half];
            const float kept = upper ? totals[k + half] : totals[k];
            totals[k] = kept + __shfl_xor_sync(0xffffffffu, away, step);
        }
    }
    #pragma unroll
    for (int step = 16 / ROWS; step; step >>= 1)
        totals[0] += __shfl_xor_sync(0xffffffffu, totals[0], step);
    return totals[0];
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) tally16(
    const uint4* codes, int rows, int vectors, int band, Count* counts, float* row_squares,
    float* column_squares)
{
    extern __shared__ unsigned table[];
    for (int i = threadIdx.x; i < TABLE; i += THREADS) table[i] = 0;
    __syncthreads();
    const int lane = threadIdx.x % 32, warps = THREADS / 32;
    const int strips = (vectors + 31) / 32;
    const int items = strips * ((rows + band - 1) / band);
    for (int item = blockIdx.x * warps + threadIdx.x / 32; item < items; item += gridDim.x * warps) {
        const int vector = item % strips * 32 + lane;
        const int first = item / strips * band;
        const int end = min(first + band, rows);
        const bool inside = vector < vectors;
        const uint4* at = codes + (long long)first * vectors + vector;
        float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        uint4 loads[ROWS];
        #pragma unroll
        for (int k = 0; k < ROWS; ++k, at += vectors)
            if (inside && first + k < end) loads[k] = __ldcs(at);
        for (int row = first; row < end; row += ROWS) {
            float totals[ROWS];
            #pragma unroll
            for (int k = 0; k < ROWS; ++k, at += vectors) {
                const uint4 load = loads[k];
                if (inside && row + ROWS + k < end) loads[k] = __ldcs(at);
                totals[k] = 0;
                if (inside && row + k < end) {
                    totals[k] = square(load, sums);
                    count(load, table, counts);
                }
            }
            const float total = add_up(totals, lane);
            const int mine = row + lane / (32 / ROWS);
            if (lane % (32 / ROWS) == 0 && mine < end) atomicAdd(&row_squares[mine], total);
        }
        if (inside) {
            float* to = column_squares + vector * 8;
#if __CUDA_ARCH__ >= 900
            for (int k = 0; k < 8; k += 4)
                atomicAdd((float4*)(to + k), make_float4(sums[k], sums[k + 1], sums[k + 2], sums[k + 3]));
#else
            for (int k = 0; k < 8; ++k) atomicAdd(&to[k], sums[k]);
#endif
        }
    }
    __syncthreads();
    // Each group starts elsewhere, or all would add to the same counts at once.
    #pragma unroll 4
    for (int i = threadIdx.x; i < TABLE; i += THREADS) {
        const unsigned at = (i + blockIdx.x * 1024) % TABLE;
        const unsigned found = table[mixed(at)];
        const unsigned code = at < 2 ? at : at + FIRST - 2;
        if (found) atomicAdd(&counts[code >> 1 | (code & 1) << 15], (Count)found);
    }
}
"""


@cache
def compiled(kind: str, card: int, threads: int = THREADS, ahead: int = ROWS) -> Any:
    """Return what runs the kernel on a card, or None where this torch or the card cannot.

    It takes the grid and the arguments. `card` is its number: what is compiled belongs to one card.
    """
    import torch

    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    room = getattr(torch.cuda.get_device_properties(card), "shared_memory_per_block_optin", 0)
    fitting = [(size, first[kind]) for size, first in _TABLES if size * 4 <= room]
    if compile_kernel is None or not fitting:
        return None
    size, first = fitting[0]
    names = {"THREADS": threads, "ROWS": ahead, "TABLE": size, "FIRST": first}
    names["IS_HALF"] = int(kind == "F16")
    made = compile_kernel(
        "".join(f"#define {name} {value}\n" for name, value in names.items()) + SOURCE, "tally16"
    )
    if not hasattr(made, "set_shared_memory_config"):
        return None
    made.set_shared_memory_config(size * 4)
    return partial(made, block=(threads, 1, 1), shared_mem=size * 4)


def tally_codes(
    codes: torch.Tensor, rows: int, columns: int, kind: str, into: Sums, first_row: int = 0
) -> None:
    """Add the codes of some rows, which lie on the card, to sums on the card.

    Parameters
    ----------
    codes
        int16 or uint16 on the card, contiguous, ``rows * columns`` of them.
    rows, columns
        The matrix; a multiple of eight columns goes the fast way.
    kind
        ``BF16`` or ``F16``.
    into
        The sums.
    first_row
        Which row of the sums the first row is.
    """
    import torch

    card = codes.device.index
    run = compiled(kind, card)
    if run is None or columns % 8 or codes.data_ptr() % 16:
        slowly(codes, rows, columns, kind, into, first_row)
        return
    groups = torch.cuda.get_device_properties(card).multi_processor_count
    # As many bands of rows for each warp as for every other: one, unless that would be too tall.
    warps, strips = groups * run.keywords["block"][0] // 32, -(-columns // _SPAN)
    turns = -(-rows * strips // (warps * _TALLEST))
    bands = max(1, warps * turns // strips)
    band = max(2, -(-rows // bands // ROWS)) * ROWS
    run(
        grid=(groups, 1, 1),
        args=[codes, rows, columns // 8, band, into.counts, into.rows[first_row:], into.columns],
    )


def slowly(
    codes: torch.Tensor, rows: int, columns: int, kind: str, into: Sums, first_row: int = 0
) -> None:
    """Do the same with torch's own functions: any width, any version of torch."""
    import torch

    numbers = codes.view(torch.int16).to(torch.int32) & 0xFFFF
    into.counts += torch.bincount(numbers, minlength=kernels.CODES)
    kind_of_torch = torch.float16 if kind == "F16" else torch.bfloat16
    squares = codes.view(kind_of_torch).view(rows, columns).float().square_()
    into.rows[first_row : first_row + rows] += squares.sum(1)
    into.columns[:columns] += squares.sum(0)


class Sums:
    """What is added up on the card."""

    def __init__(self, rows: int, columns: int, device: str) -> None:
        import torch

        self.counts = torch.zeros(kernels.CODES, dtype=torch.int64, device=device)
        self.rows = torch.zeros(rows, dtype=torch.float32, device=device)
        self.columns = torch.zeros(columns, dtype=torch.float32, device=device)


class Card:
    """One CUDA card; every thread has buffers and a stream of its own on it.

    Each thread reads a block into one of two pinned buffers while the card copies and counts the other.
    """

    def __init__(self, device: str) -> None:
        import torch

        try:
            self.device = str(torch.device(device))
            found = self.device.startswith("cuda") and torch.cuda.is_available()
            if found:
                torch.cuda.get_device_properties(self.device)
        except (RuntimeError, AssertionError, ValueError):
            found = False
        if not found:
            raise WorkbenchError(
                f"there is no device {shown(device)} here",
                why=f"torch {torch.__version__} sees {torch.cuda.device_count()} CUDA cards",
                next_step='Give device="cpu", or install a torch that was built for CUDA.',
            )
        self._local = threading.local()

    def takes(self, weight: LogicalWeight) -> bool:
        """Whether this weight goes over the card: 16-bit, and large enough to be worth the way."""
        return not weight.layout and weight.dtype in ("BF16", "F16") and weight.stored.numel > KEPT

    def take_piece(self, weight: LogicalWeight, reading: Reading, piece: int) -> Tally:
        """Read one piece of a weight, and tally it on the card."""
        import torch

        spans = reading.pieces[piece]
        width = reading.width
        if not width or any(at % width or (end - first) % width for first, end, at in spans):
            return take_piece(weight, reading, piece)
        first_row, rows = rows_of(spans, width)
        tally = Tally(kind_of(weight), width, first_row, rows)
        buffers = self._buffers()
        with torch.cuda.device(self.device), torch.cuda.stream(buffers.stream):
            into = Sums(rows, width, self.device)
            for turn, (first, end, at) in enumerate(spans):
                host, card, event = buffers.pairs[turn % 2]
                size = end - first
                event.synchronize()
                codes = host[:size].numpy().view(np.uint16)
                weight.read_into(first, codes)
                card[:size].copy_(host[:size], non_blocking=True)
                tally_codes(
                    card[:size], size // width, width, tally.kind, into, at // width - first_row
                )
                event.record(buffers.stream)
                tally.digest(codes, at)
            counts, row_sums, column_sums = (
                part.cpu().numpy() for part in (into.counts, into.rows, into.columns)
            )
        tally.counts += counts
        tally.rows[:rows] += row_sums
        tally.columns += column_sums
        return tally

    def _buffers(self) -> _Buffers:
        if not hasattr(self._local, "buffers"):
            self._local.buffers = _Buffers(self.device)
        made: _Buffers = self._local.buffers
        return made


class _Buffers:
    """Two pinned buffers, two on the card, and a stream."""

    def __init__(self, device: str) -> None:
        import torch

        with torch.cuda.device(device):
            self.stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            self.pairs = [
                (
                    torch.empty(BLOCK, dtype=torch.int16, pin_memory=True),
                    torch.empty(BLOCK, dtype=torch.int16, device=device),
                    torch.cuda.Event(),  # type: ignore[no-untyped-call]
                )
                for _ in range(2)
            ]
