"""16-bit weights on a CUDA card: counted code by code, squared along rows and columns, in one reading.

The card gives the same `Tally` as the loops on the CPU, and everything after that is the same. The values of
a weight fill a narrow range of exponents, so a table of that range fits beside each group of threads; the few
others are counted in the card's main memory.
"""

from __future__ import annotations

import threading
from functools import cache
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

# Threads a group, and columns that it takes: each thread loads eight codes, 16 bytes, at a time.
THREADS = 256
_SPAN = 8 * THREADS
# Exponents of the table: 2^-21 and up for weights below 8.
_WINDOW = {"BF16": (24 * 128, 106 * 128), "F16": (12 * 1024, 4 * 1024)}
# Groups of threads that a multiprocessor holds at a time.
GROUPS = {"BF16": 4, "F16": 2}

SOURCE = r"""
// Counts one code; the sign lies below the magnitude, so that equal exponents are beside each other.
__device__ __forceinline__ void count(
    unsigned turned, unsigned many, unsigned* table, unsigned long long* counts, unsigned base, unsigned span)
{
    const unsigned at = turned - 2 * base;
    if (at < 2 * span) atomicAdd(&table[at + 2], many);
    else if (turned < 2) atomicAdd(&table[turned], many);
    else atomicAdd(&counts[(turned >> 1) | (turned & 1) << 15], (unsigned long long)many);
}

// Takes eight codes: counts them, adds their squares to those of the columns, and returns their sum.
__device__ __forceinline__ float take(
    uint4 load, unsigned* table, unsigned long long* counts, unsigned base, unsigned span, int is_half,
    float* sums)
{
    const unsigned words[4] = {load.x, load.y, load.z, load.w};
    float total = 0;
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
        float a, b;
        if (is_half) {
            a = __uint_as_float((words[k] & 0x7fffu) << 13) * 0x1p112f;
            b = __uint_as_float((words[k] >> 3) & 0x0fffe000u) * 0x1p112f;
        } else {
            a = __uint_as_float(words[k] << 16);
            b = __uint_as_float(words[k] & 0xffff0000u);
        }
        sums[2 * k] += a * a;
        sums[2 * k + 1] += b * b;
        total += a * a + b * b;
    }
    const bool same = load.x == load.y && load.z == load.w && load.x == load.z
        && (load.x >> 16) == (load.x & 0xffffu);
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
        const unsigned turned = ((words[k] << 1) & 0xfffefffeu) | ((words[k] >> 15) & 0x00010001u);
        if (same) {
            if (k == 0) count(turned & 0xffffu, 8, table, counts, base, span);
        } else {
            count(turned & 0xffffu, 1, table, counts, base, span);
            count(turned >> 16, 1, table, counts, base, span);
        }
    }
    return total;
}

extern "C" __global__ void __launch_bounds__(256, GROUPS) tally16(
    const uint4* codes, int rows, int columns, int band, int is_half, int base_code, int window,
    unsigned long long* counts, float* row_squares, float* column_squares)
{
    // The two zeros, then the codes of the window.
    extern __shared__ unsigned table[];
    __shared__ float partial[8][64];
    const unsigned base = base_code, span = window, size = 2 * span + 2;
    for (unsigned i = threadIdx.x; i < size; i += blockDim.x) table[i] = 0;
    __syncthreads();
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const long long vectors = columns / 8;
    const long long across = (vectors + blockDim.x - 1) / blockDim.x;
    const long long items = across * (((long long)rows + band - 1) / band);
    for (long long item = blockIdx.x; item < items; item += gridDim.x) {
        const long long vector = item % across * blockDim.x + threadIdx.x;
        const long long first = item / across * band;
        const int tall = rows - first < band ? (int)(rows - first) : band;
        const bool inside = vector < vectors;
        float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (int begin = 0; begin < tall; begin += 64) {
            const int end = min(64, tall - begin);
            for (int some = 0; some < end; some += AHEAD) {
                uint4 loads[AHEAD];
                #pragma unroll
                for (int k = 0; k < AHEAD; ++k)
                    if (inside && some + k < end)
                        loads[k] = codes[(first + begin + some + k) * vectors + vector];
                #pragma unroll
                for (int k = 0; k < AHEAD; ++k) {
                    float total = 0;
                    if (inside && some + k < end)
                        total = take(loads[k], table, counts, base, span, is_half, sums);
                    #pragma unroll
                    for (int step = 16; step; step >>= 1)
                        total += __shfl_xor_sync(0xffffffffu, total, step);
                    if (lane == 0 && some + k < end) partial[warp][some + k] = total;
                }
            }
            __syncthreads();
            if (threadIdx.x < end) {
                float total = 0;
                for (int w = 0; w < 8; ++w) total += partial[w][threadIdx.x];
                atomicAdd(&row_squares[first + begin + threadIdx.x], total);
            }
            __syncthreads();
        }
        if (inside)
            for (int k = 0; k < 8; ++k) atomicAdd(&column_squares[vector * 8 + k], sums[k]);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < size; i += blockDim.x) {
        const unsigned count = table[i];
        if (!count) continue;
        const unsigned place = i < 2 ? i : i - 2 + 2 * base;
        atomicAdd(&counts[(place >> 1) | (place & 1) << 15], (unsigned long long)count);
    }
}
"""


@cache
def compiled(ahead: int = 4, groups: int = 4) -> Any:
    """Return the kernel, or None where this torch cannot compile CUDA at run time.

    `ahead` rows are loaded before the first is counted; `groups` share a multiprocessor.
    """
    import torch

    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    if compile_kernel is None:
        return None
    source = f"#define AHEAD {ahead}\n#define GROUPS {groups}\n{SOURCE}"
    return compile_kernel(source, "tally16")


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

    groups = GROUPS[kind]
    run = compiled(groups=groups)
    if run is None or columns % 8 or codes.data_ptr() % 16:
        slowly(codes, rows, columns, kind, into, first_row)
        return
    span, base = _WINDOW[kind]
    groups *= torch.cuda.get_device_properties(codes.device).multi_processor_count
    across = -(-columns // _SPAN)
    band = max(64, min(1024, rows * across // (4 * groups) // 64 * 64))
    grid = min(groups, across * -(-rows // band))
    shared = (2 * span + 2) * 4
    if shared > 48 << 10 and hasattr(run, "set_shared_memory_config"):
        run.set_shared_memory_config(shared)
    run(
        grid=(grid, 1, 1),
        block=(THREADS, 1, 1),
        args=[codes, rows, columns, band, int(kind == "F16"), base, span, into.counts,
              into.rows[first_row:], into.columns],
        shared_mem=shared,
    )  # fmt: skip


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
