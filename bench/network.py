"""Hosts that are network namespaces of this machine, joined by a bridge or by a switch in user space: what bench/tcp, bench/slow and bench/servers_hosts share."""
import contextlib
import fcntl
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LOCK = "/run/trireme-bench-tcp.lock"


@contextlib.contextmanager
def alone():
    """The names of the namespaces are the machine's: one run at a time."""
    if os.geteuid() != 0:
        sys.exit(f"{os.path.basename(sys.argv[0])}: needs root: it makes network namespaces")
    with open(LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def switch_build(folder):
    """What a network with limits wants in its folder."""
    system("cc", "-O2", f"{HERE}/net_switch.c", "-o", f"{folder}/net_switch")


def system(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


class Network:
    """Namespaces trh0.. with eth0 at 10.84.0.1.., joined by a bridge or by the switch."""

    def __init__(self, hosts, limits, folder, seconds):
        self.hosts, self.limits, self.folder, self.seconds = hosts, limits, folder, seconds
        self.switch = None

    def __enter__(self):
        self.remove()
        system("ip", "netns", "add", "trsw")
        if self.limits:
            command = ["ip", "netns", "exec", "trsw", f"{self.folder}/net_switch", str(self.hosts), *map(str, self.limits)]
            self.switch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.switch.stdout.readline()
        else:
            system("ip", "-n", "trsw", "link", "add", "br0", "type", "bridge")
            system("ip", "-n", "trsw", "link", "set", "br0", "up")
        for i in range(self.hosts):
            self.add_host(i)
        return self

    def add_host(self, i):
        name = f"trh{i}"
        system("ip", "netns", "add", name)
        if self.limits:
            system("ip", "-n", "trsw", "link", "set", f"tsw{i}", "netns", name)
            system("ip", "-n", name, "link", "set", f"tsw{i}", "name", "eth0")
        else:
            system("ip", "-n", "trsw", "link", "add", f"p{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            system("ip", "-n", "trsw", "link", "set", f"p{i}", "master", "br0", "up")
        system("ip", "-n", name, "link", "set", "eth0", "address", f"02:54:52:49:00:{i:02x}")
        system("ip", "-n", name, "addr", "add", f"10.84.0.{i + 1}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            system("ip", "-n", name, "link", "set", device, "up")
        if self.limits:
            system("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
                   f"{self.limits[0]}mbit", "burst", "70k", "limit", str(self.limits[2]))
        system("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=cubic", check=False)

    def remove(self):
        if self.switch:
            self.switch.stdin.close()
            self.switch.wait()
        for i in range(16):
            if os.path.exists(f"/run/netns/trh{i}"):
                system("ip", "netns", "del", f"trh{i}")
        if os.path.exists("/run/netns/trsw"):
            system("ip", "netns", "del", "trsw")

    def __exit__(self, *_):
        self.remove()

    def inside(self, host, command, env=()):
        """A command in the namespace of a host, with a host name of its own."""
        return ["ip", "netns", "exec", f"trh{host}", "unshare", "-u", "sh", "-c", f'hostname trh{host}; exec "$@"', "sh", "env",
                *env, *map(str, command)]

    def ranks(self, command, env=lambda rank: ()):
        """One rank a host; what rank 0 prints. env: more variables of a rank."""
        started = []
        for r in range(self.hosts):
            place = [f"RANK={r}", f"WORLD_SIZE={self.hosts}", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=10.84.0.1",
                     "MASTER_PORT=29500", *env(r)]
            started.append(subprocess.Popen(self.inside(r, command, place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return self.gather(started)

    def gather(self, started):
        try:
            outs = [p.communicate(timeout=self.seconds) for p in started]
        except subprocess.TimeoutExpired:
            # Whoever still runs in the namespaces is ours, also what a launcher started.
            for i in range(self.hosts):
                for pid in system("ip", "netns", "pids", f"trh{i}", check=False).stdout.split():
                    system("kill", "-9", pid, check=False)
            outs = [p.communicate() for p in started]
            print(f"  ! {' '.join(map(str, started[0].args[-6:]))[:120]}: not done after {self.seconds} s", file=sys.stderr, flush=True)
        bad = [err for p, (_, err) in zip(started, outs) if p.returncode != 0]
        if bad:
            print(f"  ! {bad[0].strip()[-300:]}", file=sys.stderr)
        return outs[0][0]
