#!/usr/bin/env python3
"""What NVIDIA's driver reaches and allows on card 0, for tools/gpu_check.

usage: try_driver.py rates|features [fake]

rates: of copies, and the time of a launch. features: pinned memory of a memfd, which two processes share; copies beside a kernel; memory of the
card that another process opens. What the driver refuses is one line. fake: with less memory. features calls itself with the words
`other HANDLE FD` for the other process.
"""
import ctypes
import mmap
import os
import subprocess
import sys
import time

FAKE = "fake" in sys.argv
NBYTES, TURNS = (1 << 20, 2) if FAKE else (1 << 28, 10)
MARK = 0x5A  # each byte
HANDLE_NBYTES = 64
SPIN_CYCLES = 20_000_000  # 10 ms
SPIN = b""".version 7.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 cycles)
{
    .reg .pred %p;
    .reg .u64 %n, %a, %b;
    ld.param.u64 %n, [cycles];
    mov.u64 %a, %clock64;
again:
    mov.u64 %b, %clock64;
    sub.u64 %b, %b, %a;
    setp.lt.u64 %p, %b, %n;
    @%p bra again;
    ret;
}
"""


class Refused(Exception):
    """One sentence."""


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * HANDLE_NBYTES)]


class Card:
    """Its context, and one stream."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Refused(str(error)) from error
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.queue = self.stream()
        self.kept = []  # what the driver has addresses of

    def call(self, name, *args):
        function = getattr(self.library, name, None)
        if function is None:
            raise Refused(f"this driver has no {name}")
        result = function(*args)
        if result != 0:
            raise Refused(f"{name}: error {result}")

    def stream(self):
        out = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(out), 1)
        return out

    def alloc(self, nbytes):
        out = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(out), ctypes.c_size_t(nbytes))
        return out

    def alloc_host(self, nbytes):
        out = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(out), ctypes.c_size_t(nbytes), 0)
        return out

    def pin(self, memfd):
        """A mapping of its own, pinned."""
        mapped = mmap.mmap(memfd, NBYTES)
        address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(mapped)))
        self.call("cuMemHostRegister_v2", address, ctypes.c_size_t(NBYTES), 1)
        self.kept.append(mapped)
        return mapped, address

    def copy_in(self, to, host, nbytes, stream=None):
        self.call("cuMemcpyHtoDAsync_v2", to, host, ctypes.c_size_t(nbytes), stream or self.queue)

    def copy_out(self, host, memory, nbytes, stream=None):
        self.call("cuMemcpyDtoHAsync_v2", host, memory, ctypes.c_size_t(nbytes), stream or self.queue)

    def copy_within(self, to, memory, nbytes):
        self.call("cuMemcpyDtoDAsync_v2", to, memory, ctypes.c_size_t(nbytes), self.queue)

    def fill(self, memory, byte, nbytes):
        self.call("cuMemsetD8Async", memory, ctypes.c_ubyte(byte), ctypes.c_size_t(nbytes), self.queue)

    def seconds(self, work, *streams):
        """Of work in these streams (none given: in the queue), the best of some turns."""
        best = float("inf")
        for _ in range(TURNS):
            began = time.perf_counter()
            work()
            for stream in streams or [self.queue]:
                self.call("cuStreamSynchronize", stream)
            best = min(best, time.perf_counter() - began)
        return best


def rates():
    card, nbytes = Card(), 4 * NBYTES
    a, b, host = card.alloc(nbytes), card.alloc(nbytes), card.alloc_host(nbytes)
    within = card.seconds(lambda: card.copy_within(b, a, nbytes))
    to, back = card.seconds(lambda: card.copy_in(a, host, nbytes)), card.seconds(lambda: card.copy_out(host, a, nbytes))
    one = card.seconds(lambda: card.fill(a, 0, 4))
    print(f"copies within the card {2 * nbytes / within / 1e9:.0f} GB/s, from pinned memory {nbytes / to / 1e9:.1f} GB/s, "
          f"to it {nbytes / back / 1e9:.1f} GB/s; a launch and its wait {one * 1e6:.0f} us")


def memfd_rates(card, memfd):
    """What is written into a mapping goes to the card, and comes back."""
    mapped, address = card.pin(memfd)
    memory, host = card.alloc(NBYTES), card.alloc_host(NBYTES)
    mapped[:] = bytes([MARK]) * NBYTES
    to = card.seconds(lambda: card.copy_in(memory, address, NBYTES))
    card.copy_out(host, memory, NBYTES)
    card.call("cuStreamSynchronize", card.queue)
    arrived = ctypes.string_at(host, NBYTES) == mapped[:]
    card.fill(memory, MARK + 1, NBYTES)
    back = card.seconds(lambda: card.copy_out(address, memory, NBYTES))
    arrived = arrived and mapped[:] == bytes([MARK + 1]) * NBYTES
    return (f"{NBYTES / to / 1e9:.1f} GB/s from it, {NBYTES / back / 1e9:.1f} GB/s to it" +
            ("" if arrived else ", but other bytes arrive than were sent"))


def spin(card):
    """Starts a kernel that computes for a while; on the emulator, which has no such kernel, a fill."""
    module, function, cycles = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(SPIN_CYCLES)
    args = (ctypes.c_void_p * 1)(ctypes.addressof(cycles))
    card.kept.append(cycles)
    if FAKE:
        memory = card.alloc(NBYTES)
        return lambda: card.fill(memory, cycles.value % 256, NBYTES)
    card.call("cuModuleLoadData", ctypes.byref(module), SPIN)
    card.call("cuModuleGetFunction", ctypes.byref(function), module, b"spin")
    return lambda: card.call("cuLaunchKernel", function, 128, 1, 1, 1024, 1, 1, 0, card.queue, args, None)


def overlap(card):
    start, memory, host, copies = spin(card), card.alloc(NBYTES), card.alloc_host(NBYTES), card.stream()
    said = []
    for name, copy in (("in", lambda: card.copy_in(memory, host, NBYTES, copies)), ("out", lambda: card.copy_out(host, memory, NBYTES, copies))):
        alone, kernel = card.seconds(copy, copies), card.seconds(start)

        def both(copy=copy):
            start()
            copy()
        together = card.seconds(both, copies, card.queue)
        hidden = (alone + kernel - together) / min(alone, kernel)
        said.append(f"a copy {name} of {1e3 * alone:.2f} ms and a kernel of {1e3 * kernel:.2f} ms take {1e3 * together:.2f} ms together, "
                    f"{100 * hidden:.0f} % of the shorter one is hidden")
    return "; ".join(said)


def opened_elsewhere(card, memfd):
    memory, handle = card.alloc(NBYTES), Handle()
    card.fill(memory, MARK, NBYTES)
    card.call("cuStreamSynchronize", card.queue)
    try:
        card.call("cuIpcGetMemHandle", ctypes.byref(handle), memory)
        words = bytes(handle.bytes).hex()
    except Refused as why:  # the other process still has the memfd
        print(f"memory of the card for another process: {why}", flush=True)
        words = "none"
    done = subprocess.run([sys.executable, __file__, "other", words, str(memfd), *(["fake"] if FAKE else [])], pass_fds=[memfd],
                          stdout=subprocess.PIPE, text=True, timeout=30)
    return done.stdout.strip() or f"the other process ended with {done.returncode}"


def other(words, memfd):
    """In another process: what it opens is read, and what it pins is shared with the first one."""
    card = Card()
    if words != "none":
        opened, handle, own, host = ctypes.c_uint64(), Handle(), card.alloc(NBYTES), card.alloc_host(NBYTES)
        handle.bytes[:] = bytes.fromhex(words)
        try:
            began = time.perf_counter()
            card.call("cuIpcOpenMemHandle_v2", ctypes.byref(opened), handle, 1)
            took = time.perf_counter() - began
            copy = card.seconds(lambda: card.copy_within(own, opened, NBYTES))
            card.copy_out(host, own, NBYTES)
            card.call("cuStreamSynchronize", card.queue)
            right = ctypes.string_at(host, NBYTES) == bytes([MARK]) * NBYTES
            print(f"another process opens memory of the card in {1e3 * took:.2f} ms and copies it at {2 * NBYTES / copy / 1e9:.0f} GB/s"
                  f"{'' if right else ', but the bytes are others'}")
        except Refused as why:
            print(f"another process opens memory of the card: {why}")
    try:
        print(f"a second process pins the same memfd: {memfd_rates(card, memfd)}")
    except Refused as why:
        print(f"a second process pins the same memfd: {why}")


def features():
    card, memfd = Card(), os.memfd_create("trireme")
    os.ftruncate(memfd, NBYTES)
    for name, part in (("a memfd, pinned", lambda: memfd_rates(card, memfd)), ("overlap", lambda: overlap(card)),
                       ("two processes on one card", lambda: opened_elsewhere(card, memfd))):
        try:
            print(f"{name}: {part()}", flush=True)
        except (Refused, OSError, subprocess.TimeoutExpired) as why:
            print(f"{name}: {why}", flush=True)


def main():
    try:
        if sys.argv[1:2] == ["rates"]:
            rates()
        elif sys.argv[1:2] == ["features"]:
            features()
        elif sys.argv[1:2] == ["other"]:
            other(sys.argv[2], int(sys.argv[3]))
        else:
            sys.exit("error: want rates or features")
    except Refused as why:
        sys.exit(f"error: {why}")


main()
