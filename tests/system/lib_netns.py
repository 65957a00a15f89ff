"""Network namespaces with listeners in them, for tests of what a guest reaches.

A `Net` is a host-side namespace (or the host itself) and any number of peers, each a namespace of its
own behind a veth pair, with addresses and listeners that answer a banner. Everything is taken away
again by `close()`, also when a step in between failed:

    with Net() as net:                          # a namespace of its own stands for the host
        lan = net.peer("lan", "10.77.0.1/24", "10.77.0.2/24")
        lan.listen("10.77.0.2", 80)
        net.run(["ip", "-br", "addr"])

`Net(inside=False)` uses the present namespace as the host: only veth pairs and routes of ours are
added there, and removed again.
"""
import contextlib
import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

BANNER = b"paddock-test-listener\n"
SOCKETS = {
    "tcp": (socket.SOCK_STREAM, 0),
    "udp": (socket.SOCK_DGRAM, 0),
    "broadcast": (socket.SOCK_DGRAM, 0),
    "ping": (socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
    "mptcp": (socket.SOCK_STREAM, 262),  # IPPROTO_MPTCP
}


def sh(args, **kwargs):
    """Runs to the end and returns what it printed; the error names command and complaint."""
    done = subprocess.run(args, capture_output=True, text=True, timeout=60, **kwargs)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(args)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def endpoint(address, port):
    """What the socket calls take; an address may name its interface: fe80::1%eth0."""
    return socket.getaddrinfo(address, port, flags=socket.AI_NUMERICHOST)[0][4]


def bind_all(specs):
    """The sockets of (kind, address, port) triples. Kinds: tcp, udp, and hold: tcp that stays open."""
    sockets = []
    for kind, address, port in specs:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # An address that is still being checked for duplicates can be bound all the same.
        sock.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND
        sock.bind(endpoint(address, port))
        if kind != "udp":
            sock.listen(16)
        sockets.append((kind, sock))
    return sockets


def serve(sockets):
    """Answers each connection and each datagram with the banner. Never returns."""
    selector, held = selectors.DefaultSelector(), []
    for kind, sock in sockets:
        selector.register(sock, selectors.EVENT_READ, kind)
    while True:
        for key, _ in selector.select():
            try:
                if key.data != "udp":
                    conn, _ = key.fileobj.accept()
                    conn.sendall(BANNER)
                    if key.data == "hold":
                        held.append(conn)
                    else:
                        conn.close()
                else:
                    _, peer = key.fileobj.recvfrom(2048)
                    key.fileobj.sendto(BANNER, peer)
            except OSError:
                pass


class Listener:
    """A process that listens in a namespace (None: the present one), as `uid`."""

    def __init__(self, namespace, specs, uid=0):
        args = [sys.executable, os.path.abspath(__file__), "serve", str(uid)]
        args += [f"{kind},{address},{port}" for kind, address, port in specs]
        if namespace:
            args = ["ip", "netns", "exec", namespace] + args
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.close()
            raise RuntimeError(f"no listener for {specs}")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Peer:
    """A namespace behind a veth pair, whose host side is named `link`."""

    def __init__(self, net, namespace, link):
        self.net, self.namespace, self.link = net, namespace, link

    def listen(self, address, port, kinds=("tcp", "udp")):
        return self.net.listen_in(self.namespace, [(kind, address, port) for kind in kinds])

    def run(self, args, **kwargs):
        return sh(["ip", "netns", "exec", self.namespace] + args, **kwargs)


class Net:
    serial = 0

    def __init__(self, inside=True):
        self.cleanup = contextlib.ExitStack()
        self.tag = f"pdk{os.getpid() % 100000}"
        self.host = None
        try:
            if inside:
                self.host = self.add_namespace("h")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.cleanup.close()

    def add_namespace(self, name):
        Net.serial += 1
        namespace = f"{self.tag}{name}{Net.serial}"
        sh(["ip", "netns", "add", namespace])
        self.cleanup.callback(subprocess.run, ["ip", "netns", "del", namespace],
                              stderr=subprocess.DEVNULL, check=False)
        sh(["ip", "-n", namespace, "link", "set", "lo", "up"])
        return namespace

    def host_command(self, args):
        return ["ip", "netns", "exec", self.host] + args if self.host else args

    def run(self, args, **kwargs):
        """On the host side."""
        return sh(self.host_command(args), **kwargs)

    def listen(self, address, port, kinds=("tcp", "udp")):
        """On the host side."""
        return self.listen_in(self.host, [(kind, address, port) for kind in kinds])

    def listen_in(self, namespace, specs, uid=0):
        listener = Listener(namespace, specs, uid)
        self.cleanup.callback(listener.close)
        return listener

    def peer(self, name, host_address, *addresses, routes=()):
        """A namespace with `addresses`, reached from the host, which has `host_address` on the link.

        The first of the addresses says where the peer sends its answers; `routes` are prefixes that
        the host sends to it besides.
        """
        namespace = self.add_namespace(name)
        Net.serial += 1
        outer, inner = f"{self.tag}v{Net.serial}"[:15], "eth0"
        ip_host = ["ip", "-n", self.host] if self.host else ["ip"]
        sh(ip_host + ["link", "add", outer, "type", "veth", "peer", "name", inner, "netns",
                      namespace])
        self.cleanup.callback(subprocess.run, ip_host + ["link", "del", outer],
                              stderr=subprocess.DEVNULL, check=False)
        sh(ip_host + ["addr", "add", host_address, "dev", outer] + no_dad(host_address))
        sh(ip_host + ["link", "set", outer, "up"])
        for address in addresses:
            sh(["ip", "-n", namespace, "addr", "add", address, "dev", inner] + no_dad(address))
        sh(["ip", "-n", namespace, "link", "set", inner, "up"])
        gateway = host_address.split("/")[0]
        sh(["ip", "-n", namespace, "route", "replace", "default", "via", gateway, "dev", inner,
            "onlink"] if ":" not in gateway else
           ["ip", "-n", namespace, "-6", "route", "replace", "default", "via", gateway, "dev",
            inner])
        for route in routes:
            family = "-6" if ":" in route else "-4"
            sh(ip_host + [family, "route", "add", route, "dev", outer])
        return Peer(self, namespace, outer)


def no_dad(address):
    return ["nodad"] if ":" in address else []


def probe(kind, address, port, seconds=3):
    """Connects or sends from the calling process; (outcome, milliseconds).

    The outcome is `reached`, `refused`, `silent` or the text of another error. Kinds: tcp, udp,
    mptcp, ping (IPv4); broadcast, which awaits no answer: `sent`.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    start = time.monotonic()
    try:
        with socket.socket(family, *SOCKETS[kind]) as sock:
            sock.settimeout(seconds)
            if kind == "broadcast":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                sock.sendto(b"?", endpoint(address, port))
                return "sent", 0
            sock.connect(endpoint(address, port))
            if kind == "udp":
                sock.send(b"?")
            if kind == "ping":
                sock.send(b"\x08\0\0\0\0\0\0\1")
                return ("reached" if sock.recv(64)[:1] == b"\0" else "strange"), 0
            outcome = "reached" if sock.recv(64) == BANNER else "strange"
    except ConnectionRefusedError:
        outcome = "refused"
    except PermissionError:
        outcome = "refused"
    except TimeoutError:
        outcome = "silent"
    except OSError as error:
        outcome = str(error)
    return outcome, int((time.monotonic() - start) * 1000)


def probe_as(net, uid, kind, address, port, seconds=3):
    """`probe` on the host side of `net`, from a process with that uid and no other right."""
    out = net.run([sys.executable, os.path.abspath(__file__), "probe", str(uid), kind, address,
                   str(port), str(seconds)])
    outcome, ms = out.rsplit(" ", 1)
    return outcome, int(ms)


def become(uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def main(argv):
    if argv[0] == "serve":
        specs = [(k, a, int(p)) for k, a, p in (s.split(",") for s in argv[2:])]
        endpoint(specs[0][1], 0)
        become(int(argv[1]))
        sockets = bind_all(specs)
        # Ends with its parent, whatever happens to that. (A change of uid would clear this.)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        print("ready", flush=True)
        serve(sockets)
    if argv[0] == "probe":
        uid, kind, address, port, seconds = argv[1:]
        endpoint(address, int(port))  # loads its codec while the interpreter's files are readable
        become(int(uid))
        print(*probe(kind, address, int(port), float(seconds)))


if __name__ == "__main__":
    main(sys.argv[1:])
